"""A loss without learning: it stays near that of a guess, swings about it, or never changes."""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import SUSPECT, Limits, Outcome, Threshold
from steadyrun.signals.progress import Levels
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_CLASSES = (2, 10, 100, 1000)
_GUESSES = {math.log(count): f"Guessing among {count:,} classes costs" for count in _CLASSES}
_GUESSES[0.25] = "Always predicting 0.5 for targets of 0 and 1 has a squared error of"


def at_a_guess(run: Signals, limit: Limits, loss: Levels) -> str:
    """A sentence if a loss that does not fall stays at the loss of a model that ignores its inputs; else empty.

    With a learning rate near zero a loss may stay anywhere.
    """
    rates = run.maybe("lr/0")
    if rates is not None and float(np.max(rates.values)) < limit["rate"]:
        return ""
    for guess, words in _GUESSES.items():
        levels_there = (loss.start, loss.best, loss.end)
        if loss.points >= limit["points"] and all(abs(level / guess - 1) < limit["near"] for level in levels_there):
            return f" {words} {shown(guess)}."
    return ""


def one_value(run: Signals) -> str:
    """A sentence if every loss is the same number to the last digit; else empty."""
    values = run.points("loss").values
    if float(np.ptp(values)) > 0:
        return ""
    return f"Loss is exactly {shown(values[0])} in all {len(values)} rows."


def around_a_guess(limit: Limits, loss: Levels, surely: float) -> str:
    """A sentence if a loss begins and ends near a guess, and climbed further above its start than it ends below it."""
    highest = float(np.max(loss.stretches))
    down = loss.start - loss.end
    if loss.points < limit["points"] or highest - loss.start <= max(surely, abs(down)):
        return ""
    for guess, words in _GUESSES.items():
        if max(abs(loss.start / guess - 1), abs(loss.end / guess - 1), abs(down) / guess) < limit["around"]:
            return f"{words} {shown(guess)}, and the loss climbed to {shown(highest)} on the way."
    return ""


GUESS_LIMITS = (
    Threshold(
        name="near",
        value=0.01,
        unit="fraction",
        meaning="how near a loss that does not fall must be to the loss of a guess",
        seed="",
        decision="only for 0.693, 2.303, 4.605, 6.908 and 0.25; other losses come this near by chance",
    ),
    Threshold(
        name="around",
        value=0.1,
        unit="fraction of the loss of a guess",
        meaning="a loss whose start and end are this near to a guess, and which climbed above it, has only swung",
        seed="",
        decision="five times the smallest fall that counts",
    ),
    Threshold(
        name="rate",
        value=1e-9,
        unit="learning rate",
        meaning="a learning rate that never exceeds this moves nothing",
        seed="",
        decision="a tenth of the lowest learning rates in use",
    ),
)

GUESS_OUTCOMES = (
    Outcome(
        name="constant",
        answer=SUSPECT,
        meaning="the loss never changes: nothing is learned, or it is not measured",
        fix="Print the loss of a few batches with all its digits. If it varies, log more digits; if not, check "
        "that the targets reach the loss and are not all masked, and that its gradient reaches the parameters.",
        experiment="Print the loss of one batch and the norm of its gradient. If the gradient is 0, the loss does "
        "not depend on the model; if not, the log does not show the loss that is trained.",
        may_pass=True,
        symptom=True,
    ),
    Outcome(
        name="around",
        answer=SUSPECT,
        meaning="the loss swings about the loss of a guess",
        fix="Divide the learning rate by ten. If the loss then falls steadily, it was too high.",
        experiment="Overfit one batch (steadyrun preflight --deep). If that works, the learning rate is wrong; if "
        "not, the labels, the loss or the model is.",
        may_pass=True,
        symptom=True,
    ),
)
