"""D3.1: did gradients overflow in mixed precision?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.nonfinite import unskipped
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    dtype = regime(run)
    if dtype not in {"fp16", "bf16"}:
        why = f"the run computes in {dtype or 'an unknown format'}, not in fp16 or bf16"
        raise NotApplicable(why, *([] if dtype else ["dtype"]))
    if not run.has("grad_norm"):
        raise MissingSignal("grad_norm")
    norms = run.raw("grad_norm")
    bad = norms.steps[~np.isfinite(norms.values)]
    loose = unskipped(bad, run.raw("skipped")).tolist() if run.has("skipped") else run.applied.tolist()
    measured = {"overflows": float(len(bad)), "not_skipped": float(len(loose))}
    if loose and dtype == "fp16":
        message = (
            f"{len(bad)} gradients are not finite in fp16, and {len(loose)} of these updates were not skipped, "
            f"the first at step {loose[0]}."
        )
        return Finding("overflow", message, measured, loose[0])
    if len(bad):
        known = "each of these steps was skipped" if run.has("skipped") else "the loss went on after each of them"
        return Finding(
            "skipped",
            f"{len(bad)} of {len(norms)} gradients overflowed; {known}.",
            measured,
            int(bad[0]),
        )
    return Finding("pass", f"all {len(norms)} gradient norms are finite.", measured)


QUESTION = Question(
    code="D3.1",
    name="gradient overflow",
    asks="In fp16 or bf16, is there a step with an infinite or NaN gradient norm?",
    why="fp16 ends at 65504. A loss scaler looks for overflow and skips those steps; an update with an infinite "
    "gradient "
    "destroys the weights.",
    needs=("grad_norm", "dtype"),
    panel=3,
    thresholds=(),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no overflow"),
        Outcome(name="skipped", answer=NOTE, meaning="overflows that the loss scaler caught: its ordinary life"),
        Outcome(
            name="overflow",
            answer=FAULT,
            meaning="fp16 gradients overflowed and the update was applied",
            fix="Use torch.amp.GradScaler (scale, unscale_, step, update), or switch to bf16.",
        ),
    ),
    find=find,
)
