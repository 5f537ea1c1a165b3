"""A3.9: does the loss leave out the padded positions of a sequence?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.intent import in_a_row, of_targets
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent


def find(run: Signals, limit: Limits) -> Finding:
    padding = of_targets(run, "padding_counted", "the model's output has no positions beside those of a padded input")
    fraction = float(np.median(padding.values))
    measured = {"fraction": fraction, "largest": float(np.max(padding.values))}
    first = in_a_row(padding.values > limit["fraction"], limit["samples"])
    if first is None:
        return Finding("pass", f"{percent(fraction)} of the positions with a gradient are padding.", measured)
    declared = run.maybe("padding_declared")
    known = declared is not None and float(np.median(declared.values)) > 0
    what = "hold the token that pads" if known else "are zeros up to the end of their sequence"
    message = f"{percent(fraction)} of the positions that the loss counts {what} (limit {percent(limit['fraction'])})."
    return Finding("counted" if known else "zeros-counted", message, measured, padding.step_at(first))


_FIX = "Leave padding out: loss = (losses * mask).sum() / mask.sum(), or ignore_index for classes."

QUESTION = Question(
    code="A3.9",
    name="padded positions are left out",
    asks="Does the loss leave out the padded positions of a sequence, whatever its targets are?",
    why="Padding has the same target each time and is learned at once: the loss looks low, and the longer the padding, "
    "the less the real positions count.",
    needs=("objective",),
    panel=1,
    thresholds=(
        Threshold(
            name="fraction",
            value=0.05,
            unit="of the positions with a gradient",
            meaning="more than this is no leftover",
            seed="",
            decision="a mask leaves exactly none",
            of="fraction",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps in a row",
            meaning="how many must show it",
            seed="",
            decision="not one strange batch",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="padded positions have no gradient"),
        Outcome(
            name="counted",
            answer=FAULT,
            meaning="positions of the declared padding token are part of the loss",
            fix=_FIX,
            explains=("C1", "C4", "S1"),
        ),
        Outcome(
            name="zeros-counted",
            answer=SUSPECT,
            meaning="zeros at the end of sequences are part of the loss: padding without a mask, or real zeros",
            fix=_FIX,
            experiment="Compute the validation loss over the real positions alone, with the mask and without it in "
            "training, for 200 steps each. If the mask makes it lower, the zeros are padding.",
            explains=("C1", "C4", "S1"),
        ),
    ),
    find=find,
    always=True,
)
