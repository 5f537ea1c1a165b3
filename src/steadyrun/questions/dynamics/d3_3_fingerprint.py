"""D3.3: is it an fp16 overflow, or would fp32 fail, too?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import regime
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    if regime(run) != "fp16":
        raise NotApplicable("only asked of fp16 runs")
    if run.first_nonfinite is None:
        raise NotApplicable("nothing that was recorded is non-finite outside of skipped steps")
    step, name = run.first_nonfinite
    scale = run.raw("loss_scale") if run.has("loss_scale") else None
    before = scale.values[scale.steps < step] if scale is not None else np.array([])
    halving = len(before) > 1 and bool(np.any(np.diff(before) < 0))
    signs = [
        f"first in the {'gradient' if name == 'grad_norm' else 'loss'}",
        "the loss scale was halving before it" if halving else "the loss scale was not halving before it",
    ]
    overflow = name == "grad_norm" or halving
    outcome = "overflow" if overflow else "structural"
    verdict = "the fingerprint of an fp16 overflow" if overflow else "the fingerprint of a bug that fp32 has, too"
    return Finding(outcome, f"at step {step}, {' and '.join(signs)}: {verdict}.", {"step": float(step)}, step)


QUESTION = Question(
    code="D3.3",
    name="fingerprint",
    asks="Where did the first non-finite value appear, and was the loss scale halving before it?",
    why="An fp16 overflow shows in gradients or activations while the scale halves; a bug in the loss shows in the "
    "loss "
    "directly, at any precision. Running the one step in fp32 decides it.",
    needs=("loss", "grad_norm", "loss_scale"),
    panel=3,
    thresholds=(),
    outcomes=(
        Outcome(name="overflow", answer=NOTE, meaning="the fingerprint of an fp16 overflow"),
        Outcome(name="structural", answer=NOTE, meaning="the fingerprint of a bug that fp32 has, too"),
    ),
    find=find,
)
