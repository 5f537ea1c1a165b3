"""A3.9: does the loss exclude the padded positions of a sequence?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, of_targets
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    padding = of_targets(run, "padding_counted", "the model's output has no positions that match a padded input")
    fraction = float(np.median(padding.values))
    measured = {"fraction": fraction, "largest": float(np.max(padding.values))}
    first = in_a_row(padding.values > limit["fraction"], limit["samples"])
    if first is None:
        return Finding("pass", f"Of the positions with a gradient, {percent(fraction)} are padding.", measured)
    declared = run.maybe("padding_declared")
    known = declared is not None and float(np.median(declared.values)) > 0
    what = "hold the padding token" if known else "are zeros up to the end of their sequence"
    message = f"Of the positions in the loss, {percent(fraction)} {what} (limit {percent(limit['fraction'])})."
    return Finding("counted" if known else "zeros-counted", message, measured, padding.step_at(first))


_FIX = "Exclude padding: loss = (losses * mask).sum() / mask.sum(), or ignore_index for classes."

QUESTION = Question(
    code="A3.9",
    name="padded positions are excluded",
    asks="Does the loss exclude the padded positions of a sequence, whatever its targets are?",
    why="Padding always has the same target and is learned at once: the loss looks low, and the longer the padding, "
    "the less the real positions count.",
    needs=("objective",),
    panel=1,
    thresholds=(
        Threshold(
            name="fraction",
            value=0.05,
            unit="of the positions with a gradient",
            meaning="how many of them may be padding",
            seed="",
            decision="with a mask there are none",
            of="fraction",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="consecutive sampled steps",
            meaning="how many must show it",
            seed="",
            decision="one unusual batch does not count",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="padded positions have no gradient"),
        Outcome(
            name="counted",
            answer=FAULT,
            meaning="the loss includes padded positions",
            fix=_FIX,
            explains=("C1", "C4", "S1"),
        ),
        Outcome(
            name="zeros-counted",
            answer=SUSPECT,
            meaning="the loss includes trailing zeros, which may be padding",
            fix=_FIX,
            experiment="Train 200 steps with a mask and 200 without it, and compare the validation loss over the real "
            "positions. If the mask lowers it, the zeros are padding.",
            explains=("C1", "C4", "S1"),
        ),
    ),
    find=find,
    always=True,
)
