"""D3.1: gradient overflow in mixed precision."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.nonfinite import unskipped
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted


def find(run: Signals, _limit: Limits) -> Finding:
    dtype = regime(run)
    if dtype not in {"fp16", "bf16"}:
        why = f"the run computes in {dtype or 'an unknown dtype'}, not in fp16 or bf16"
        raise NotApplicable(why, *([] if dtype else ["dtype"]))
    if not run.has("grad_norm"):
        raise MissingSignal("grad_norm")
    norms = run.raw("grad_norm")
    bad = norms.steps[~np.isfinite(norms.values)]
    loose = unskipped(bad, run.raw("skipped")).tolist() if run.has("skipped") else run.applied.tolist()
    measured = {"overflows": float(len(bad)), "not_skipped": float(len(loose))}
    if loose and dtype == "fp16":
        message = (
            f"{_overflowed(len(bad), len(norms))} in fp16; {counted(len(loose), 'such update')} "
            f"{'was' if len(loose) == 1 else 'were'} applied, the first at step {loose[0]}."
        )
        return Finding("overflow", message, measured, loose[0])
    if len(bad):
        known = "training continued after it" if len(bad) == 1 else "training continued after each of them"
        if run.has("skipped") and not loose:
            known = "the loss scaler skipped " + ("this step" if len(bad) == 1 else "each of these steps")
        return Finding("skipped", f"{_overflowed(len(bad), len(norms))}; {known}.", measured, int(bad[0]))
    return Finding("pass", f"All {len(norms)} gradient norms are finite.", measured)


def _overflowed(bad: int, count: int) -> str:
    return f"{bad} of {count} gradient norms {'is' if bad == 1 else 'are'} not finite"


QUESTION = Question(
    code="D3.1",
    name="gradient overflow",
    asks="In fp16 or bf16, does any step have an infinite or NaN gradient norm?",
    why="The largest fp16 number is 65504. A loss scaler detects overflow and skips the step; an update with an "
    "infinite gradient destroys the weights.",
    needs=("grad_norm", "dtype"),
    panel=3,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no gradient overflows"),
        Outcome(
            name="skipped",
            answer=NOTE,
            meaning="some gradients are not finite, and training continued",
            fix="No action is needed while the loss falls.",
        ),
        Outcome(
            name="overflow",
            answer=FAULT,
            meaning="fp16 gradients overflowed and the update was applied",
            fix="Use torch.amp.GradScaler (scale, unscale_, step, update), or switch to bf16.",
        ),
    ),
    find=find,
)
