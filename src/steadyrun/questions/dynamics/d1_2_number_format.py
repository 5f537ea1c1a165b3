"""D1.2: in which number format did it happen?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    if run.first_nonfinite is None:
        raise NotApplicable("nothing that was recorded is non-finite")
    step = run.first_nonfinite[0]
    dtype = regime(run)
    if not dtype:
        raise MissingSignal("dtype", "the number format is not known", "declare config={'dtype': 'fp32'}")
    if dtype == "fp16":
        message = f"fp16 at step {step}: numbers above 65504 are infinite there, so mixed precision is looked at first."
        return Finding("fp16", message, step=step)
    if dtype == "bf16":
        message = f"bf16 at step {step}: as wide as fp32, but each operation is off by up to 1%."
        return Finding("bf16", message, step=step)
    return Finding(
        "fp32", f"{dtype} at step {step}: a log of zero, a division 0/0, or weights grown without bound.", step=step
    )


QUESTION = Question(
    code="D1.2",
    name="number format",
    asks="Which dtype did the run compute in when the first non-finite value came?",
    why="In fp16 an overflow at 65504 is the usual cause; in fp32 and bf16 it is nearly always an operation that has "
    "no "
    "finite answer.",
    needs=("dtype",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(name="fp16", answer=NOTE, meaning="half precision overflows easily"),
        Outcome(name="bf16", answer=NOTE, meaning="as in fp32, with noisier gradients"),
        Outcome(name="fp32", answer=NOTE, meaning="full precision: an operation without a finite answer"),
    ),
    find=find,
)
