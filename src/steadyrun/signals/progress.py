"""How far the loss has come: what several questions need to know before they call a run stuck."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadyrun.signals.curves import Floats, ema
from steadyrun.signals.intent import chooses
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Points, Signals

SPAN = 50
_FIRST = 10
_GUESS = 0.3  # of ln V: a first loss this close to it is that of an untrained model
SURE = 4.5  # errors
_LEARNS = 0.05  # share of the first loss
_TELLING = 8  # classes: of fewer, a log alone does not tell whether there is more to learn
_FEWEST = 20  # points from which anything is said of a loss curve


@dataclass(frozen=True)
class Progress:
    """The smoothed loss and how much of its start is gone."""

    loss: Points
    smooth: Floats
    start: float

    @property
    def end(self) -> float:
        return float(self.smooth[-1])

    @property
    def fallen(self) -> float:
        """The share of the starting loss that is gone at the best smoothed point after the first quarter."""
        later = self.smooth[len(self.smooth) // 4 :]
        return float((self.start - np.min(later)) / abs(self.start)) if self.start else 0.0


def progress(run: Signals) -> Progress:
    """The run's progress; an error where too few points are recorded to tell."""
    loss = run.points("loss")
    if len(loss) < _FEWEST:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal("loss", f"only {len(loss)} losses are recorded, {_FEWEST} are needed", how)
    if "progress" in run.memo:
        known: Progress = run.memo["progress"]
        return known
    span = min(SPAN, max(2, len(loss) // 4))
    smooth = ema(loss.values, span)
    # A loss that explodes at once is above its start from the second step on.
    start = min(float(np.mean(loss.values[:3])), float(np.mean(loss.values[:_FIRST])))
    measured = run.memo["progress"] = Progress(loss, smooth, start)
    return measured


def from_scratch(run: Signals) -> bool:
    """Whether the run is known to start untrained: declared so, or its first loss is that of a guess.

    Never of a log by epochs: its first point is the mean of an epoch, in which most may have been learnt already.
    """
    if run.step_unit != "step" or (run.imported and (chooses(run) or _TELLING) < _TELLING):
        return False
    init = run.config.get("init")
    if isinstance(init, str):
        return init.lower() == "random"
    count, loss = chooses(run), run.maybe("loss")
    return count is not None and loss is not None and abs(float(loss.values[0]) / math.log(count) - 1) < _GUESS


def surely(training: Progress) -> float:
    """How surely the loss has changed from its first tenth to its last half, in errors; falling is negative."""
    values = training.loss.values
    early, late = values[: max(_FEWEST, len(values) // 10)], values[len(values) // 2 :]
    error = math.sqrt(float(np.var(early)) / len(early) + float(np.var(late)) / len(late))
    change = float(np.mean(late) - np.mean(early))
    return change / error if error > 0 else math.copysign(math.inf, change) if change else 0.0


def learns(run: Signals) -> bool:
    """Whether the loss has fallen: then there are gradients and a learning rate, whatever a log prints of them."""
    loss = run.maybe("loss")
    return loss is not None and len(loss) >= _FEWEST and progress(run).fallen > _LEARNS


def should_fall(run: Signals) -> str:
    """Why the loss must fall where it must; empty where it may move as it likes (a game, a moving target)."""
    optimizers = {str(group.get("optimizer")) for group in run.listed("param_groups")}
    loss = run.maybe("loss")
    if len(optimizers) > 1 or loss is None or float(np.min(loss.values)) < 0:
        return ""
    count = chooses(run)
    if count is not None and abs(float(loss.values[0]) / math.log(count) - 1) < _GUESS:
        return "it is a cross-entropy that starts at a guess"
    if run.maybe("val_loss") is not None:
        return "a validation loss is recorded with it"
    return ""
