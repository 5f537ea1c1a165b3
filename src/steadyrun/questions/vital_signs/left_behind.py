"""Validation that gains hardly anything of what training learns."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, SUSPECT, Limits, Outcome, Threshold
from steadyrun.signals.curves import chance_of_rise
from steadyrun.signals.progress import Levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import improves_since
from steadyrun.signals.validation import Gap


def left_behind(run: Signals, gap: Gap, loss: Levels, limit: Limits) -> str | None:
    """Whether validation gains hardly anything of what training learns, or stays level far above it; else None."""
    values, first = gap.val.values, float(gap.val.values[0])
    if len(values) < limit["losses"] or min(first, float(gap.train[0]), loss.end) <= 0:
        return None
    if improves_since(run, gap.val, gap.val.steps[0]):
        return None
    if float(gap.train[-1]) < limit["by_heart"] * float(gap.train[0]) and gap.lowest > (1 - limit["hardly"]) * first:
        return "hardly-better"
    level = gap.lowest > (1 - limit["better"]) * first and chance_of_rise(-values) > limit["chance"]
    apart = bool(np.all(values > (1 + limit["apart"]) * gap.train))
    return "level" if level and apart and loss.chance_of_fall < limit["chance"] else None


LEFT_BEHIND_LIMITS = (
    Threshold(
        name="by_heart",
        value=0.1,
        unit="of the training loss at the first validation",
        meaning="training that falls below this has learned far more than a hard task leaves",
        seed="",
        decision="a tenth: what is left to learn then is mostly single examples",
    ),
    Threshold(
        name="hardly",
        value=0.1,
        unit="fraction of the first validation loss",
        meaning="validation that falls by less hardly improves, if training falls to a tenth",
        seed="",
        decision="the size of a rise that counts",
    ),
    Threshold(
        name="apart",
        value=0.25,
        unit="fraction of the training loss",
        meaning="a validation loss that stays level this far above training no longer gains from it",
        seed="",
        decision="dropout and noise keep the two losses of a healthy run nearer",
    ),
)

LEFT_BEHIND_OUTCOMES = (
    Outcome(
        name="hardly-better",
        answer=SUSPECT,
        meaning="training falls far and validation hardly improves: the model memorises",
        fix="Add data or regularisation, or use a smaller model. Check that validation data is prepared like "
        "training data.",
        experiment="Validate on a few training batches. If their loss equals the training loss, the model has "
        "memorised; if it equals the validation loss, evaluation is broken.",
        may_pass=True,
        symptom=True,
    ),
    Outcome(
        name="level",
        answer=NOTE,
        meaning="validation stays level far above a training loss that still falls",
        fix="Stop here or add regularisation: what training gains no longer helps validation. Compare how both "
        "losses are computed.",
    ),
)
