"""D3.3: an fp16 overflow, or a bug that also fails in fp32."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    if regime(run) != "fp16":
        raise NotApplicable("the run does not compute in fp16")
    if run.first_nonfinite is None:
        raise NotApplicable("all recorded values outside skipped steps are finite")
    step, name = run.first_nonfinite
    scale = run.raw("loss_scale") if run.has("loss_scale") else None
    before = scale.values[scale.steps < step] if scale is not None else np.array([])
    halving = len(before) > 1 and bool(np.any(np.diff(before) < 0))
    where = "gradient" if name == "grad_norm" else "loss"
    if scale is None:
        before_it = "the loss scale is not recorded"
    else:
        before_it = "the loss scale fell before it" if halving else "the loss scale did not fall before it"
    outcome = "overflow" if name == "grad_norm" or halving else "structural"
    message = f"The first non-finite value is in the {where}, at step {step}; {before_it}."
    return Finding(outcome, message, {"step": float(step)}, step)


QUESTION = Question(
    code="D3.3",
    name="overflow or bug",
    asks="Is the first non-finite value in the loss or the gradient, and did the loss scale fall before it?",
    why="An fp16 overflow appears in gradients or activations while the loss scale falls; a bug in the loss appears "
    "in the loss itself, at any precision. Run the same step in fp32 to decide.",
    needs=("loss", "grad_norm", "loss_scale"),
    panel=3,
    thresholds=(),
    outcomes=(
        Outcome(
            name="overflow",
            answer=NOTE,
            meaning="the first non-finite value looks like an fp16 overflow",
            fix="Switch to bf16, or use torch.amp.GradScaler.",
        ),
        Outcome(
            name="structural",
            answer=NOTE,
            meaning="the first non-finite value looks like a bug that also fails in fp32",
            fix="Run the failing step in fp32 and look for the first operation with a non-finite result.",
        ),
    ),
    find=find,
)
