"""D1.2: the number format at the first non-finite value."""

from __future__ import annotations

from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    if run.first_nonfinite is None:
        raise NotApplicable("all recorded values are finite")
    step = run.first_nonfinite[0]
    dtype = regime(run)
    if not dtype:
        raise MissingSignal("dtype", "the dtype of the run is not known", "declare config={'dtype': 'fp32'}")
    if dtype == "fp16":
        message = f"The run computes in fp16 at step {step}; fp16 overflows above 65504."
        return Finding("fp16", message, step=step)
    if dtype == "bf16":
        message = f"The run computes in bf16 at step {step}: the range of fp32, but rounding errors of up to 1%."
        return Finding("bf16", message, step=step)
    causes = "usual causes are log(0), 0 / 0 and weights that grow without bound"
    return Finding("fp32", f"The run computes in {dtype} at step {step}; {causes}.", step=step)


QUESTION = Question(
    code="D1.2",
    name="number format",
    asks="In which dtype does the run compute at the first non-finite value?",
    why="In fp16 an overflow above 65504 is the usual cause; in fp32 and bf16 it is nearly always an operation "
    "without a finite result.",
    needs=("dtype",),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome(
            name="fp16",
            answer=NOTE,
            meaning="the run computes in fp16, which overflows easily",
            fix="Use a loss scaler (torch.amp.GradScaler), or switch to bf16.",
        ),
        Outcome(
            name="bf16",
            answer=NOTE,
            meaning="the run computes in bf16, which has the range of fp32",
            fix="Look for an operation that also fails in fp32, such as log(0) or 0 / 0: see D1.3.",
        ),
        Outcome(
            name="fp32",
            answer=NOTE,
            meaning="the run computes in full precision",
            fix="Look for the first layer with a non-finite output: see D1.3.",
        ),
    ),
    find=find,
)
