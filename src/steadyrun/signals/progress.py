"""Progress of the loss, for the questions that judge whether a run is stuck."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadyrun.signals.curves import OF_NORMAL, Floats, chance_of_rise, ema, neighbour_noise
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import LimitTable, Points, Signals

SPAN = 50
_FIRST = 10
_QUARTER = 4
_BLOCKS = 20  # equal parts whose medians are compared; fewer if they would have a single point
_SPREAD = 6  # points: with fewer, the spread about their own median is too small, and neighbours are used instead
_TWO_LEVELS = 30  # points: with fewer, ranks this near the median are those of single points
_OF_MEDIAN = 1.2533  # from the standard error of a mean to that of a median
_TENTH = 10
_EARLIEST = 3
_EXPLODES = 2.0  # times: if the mean of the first points is this far above the first, the loss exploded


@dataclass(frozen=True)
class Progress:
    """The smoothed loss and how far it fell."""

    loss: Points
    smooth: Floats
    start: float

    @property
    def end(self) -> float:
        return float(self.smooth[-1])

    @property
    def fallen(self) -> float:
        """The fraction of the first loss by which the best smoothed loss after the first quarter is lower."""
        later = self.smooth[len(self.smooth) // _QUARTER :]
        return float((self.start - np.min(later)) / abs(self.start)) if self.start else 0.0


@dataclass(frozen=True)
class Levels:
    """A loss in a few numbers: its start, its best and its last level as medians of equal parts."""

    start: float
    best: float
    end: float
    error: float  # the standard error of such a median
    best_step: int
    steps: float
    later: float  # the best level of the second half
    points: int
    stretches: Floats  # the median of each part, in order; the values themselves for a short record, for trend tests
    first_step: float

    @property
    def chance_of_climb(self) -> float:
        """The probability that levels without a trend rise as steadily as those since the lowest."""
        return chance_of_rise(self.stretches[int(np.argmin(self.stretches)) :])

    @property
    def chance_of_fall(self) -> float:
        """The probability that levels without a trend fall as steadily as these."""
        return chance_of_rise(-self.stretches)

    @property
    def fallen(self) -> float:
        """The fraction of the first loss by which the end is lower."""
        return (self.start - self.end) / abs(self.start) if self.start else 0.0

    @property
    def lost(self) -> float:
        """The fraction of the descent that is lost again; in logarithms if the loss is positive."""
        back, down = max(0.0, self.end - self.best), self.start - self.best
        if self.best > 0:
            back, down = math.log1p(back / self.best), math.log1p(max(down, 0.0) / self.best)
        return back / down if down > 0 else 0.0


def levels(run: Signals, name: str, fewest: float, *, rises: bool = False) -> Levels:
    """The levels of a loss along the path of training; `MissingSignal` if too few points are recorded.

    If the series `rises` in a healthy run, as a return does, the highest level is the best.
    """
    points = path_of(run).along(run.points(name))
    if len(points) < fewest:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal(name, f"only {len(points)} losses are recorded; {fewest:g} are needed", how)
    if ("levels", name, rises) in run.memo:
        known: Levels = run.memo["levels", name, rises]
        return known
    values = points.values
    size = max(2, len(values) // _BLOCKS)
    tail = values[len(values) % size :].reshape(-1, size)
    medians = np.median(tail, axis=1)
    best = int(np.argmax(medians) if rises else np.argmin(medians))
    at = len(values) % size + best * size
    lowest, last = float(medians[best]), float(medians[-1])
    half = medians[len(medians) // 2 :]
    later = float(np.max(half) if rises else np.min(half))
    start = float(medians[0]) if rises else true_start(values)
    error = _error(values, tail, medians)
    length, first = run.length(points), float(points.steps[0])
    ranked = medians if size > 2 else values
    measured = Levels(start, lowest, last, error, points.step_at(at), length, later, len(values), ranked, first)
    run.memo["levels", name, rises] = measured
    return measured


def _error(values: Floats, tail: Floats, medians: Floats) -> float:
    """The standard error of the median of a part."""
    size = tail.shape[1]
    if size < _SPREAD:
        return neighbour_noise(values) / math.sqrt(size)
    normal = float(np.median(np.abs(tail - medians[:, None]))) * OF_NORMAL * _OF_MEDIAN / math.sqrt(size)
    return normal if size < _TWO_LEVELS else max(normal, _between_ranks(tail))


def _between_ranks(tail: Floats) -> float:
    """The standard error of the median of a part, whatever the distribution: half the distance between two ranks.

    Losses of easy and hard batches lie at two levels, and few lie between them, where the median is.
    """
    size, ordered = tail.shape[1], np.sort(tail, axis=1)
    away = math.sqrt(size) / 2
    low, high = math.floor((size - 1) / 2 - away), math.ceil((size - 1) / 2 + away)
    between: Floats = ordered[:, high] - ordered[:, low]
    return float(np.median(between)) * float(away / (high - low))


def true_start(values: Floats) -> float:
    """The start of a loss: the mean of its first points (at most a quarter), or the first alone if the next explode."""
    first, quarter = float(values[0]), max(1, len(values) // _QUARTER)
    early = min(float(np.mean(values[: min(_EARLIEST, quarter)])), float(np.mean(values[: min(_FIRST, quarter)])))
    return first if 0 < _EXPLODES * first < early else early


def progress(run: Signals, fewest: float) -> Progress:
    """The progress of the run; `MissingSignal` if fewer than `fewest` points are recorded."""
    loss = run.points("loss")
    if len(loss) < fewest:
        how = "let it run on" if run.running else "train for longer"
        raise MissingSignal("loss", f"only {len(loss)} losses are recorded; {fewest:g} are needed", how)
    if "progress" in run.memo:
        known: Progress = run.memo["progress"]
        return known
    span = min(SPAN, max(2, len(loss) // _QUARTER))
    smooth = ema(loss.values, span)
    measured = run.memo["progress"] = Progress(loss, smooth, true_start(loss.values))
    return measured


def surely(training: Progress, fewest: int) -> float:
    """The change of the loss from its first tenth to its second half, in standard errors; a fall is negative.

    The first tenth has at least `fewest` points; in a short record it is the first half.
    """
    values = training.loss.values
    half = len(values) // 2
    early, late = values[: max(1, min(half, max(fewest, len(values) // _TENTH)))], values[half:]
    error = math.sqrt(float(np.var(early)) / len(early) + float(np.var(late)) / len(late))
    change = float(np.mean(late) - np.mean(early))
    return change / error if error > 0 else math.copysign(math.inf, change) if change else 0.0


def learns(run: Signals, limit: LimitTable) -> bool:
    """Whether the loss fell beyond chance: then gradients and learning rate are not 0, whatever is recorded."""
    loss = run.maybe("loss")
    if loss is None or len(loss) < limit["losses"]:
        return False
    training = progress(run, limit["losses"])
    return training.fallen > limit["learns"] and surely(training, int(limit["early"])) < -limit["errors"]
