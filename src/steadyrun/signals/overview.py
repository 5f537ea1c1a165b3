"""Summaries of whole series: first and last values, extremes, and the spread of several series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.records import Series
from steadyrun.signals.curves import Floats, ema, thinned
from steadyrun.signals.declared_schedule import number

Steps = npt.NDArray[np.int64]

_GAPS_FROM = 50  # points: with fewer the spacing does not show gaps
_SAMPLED = 1001  # spacings for the median
_GAP = 20.0  # times the usual spacing


@dataclass(frozen=True)
class Extent:
    """The finite values of a series: first, last, lowest, highest; and how many are not finite."""

    first: float
    last: float
    low: float
    high: float
    high_step: int
    last_step: int
    finite: int
    not_finite: int

    @property
    def growth(self) -> float:
        """The highest value over the first; NaN if the first is not positive."""
        return self.high / self.first if self.first > 0 else float("nan")


def extent(series: Series) -> Extent | None:
    """The extent of a series; None if it has no finite value."""
    keep = np.isfinite(series.values)
    if not np.any(keep):
        return None
    whole = bool(np.all(keep))
    values = series.values if whole else series.values[keep]
    steps = series.steps if whole else series.steps[keep]
    top = int(np.argmax(values))
    return Extent(
        float(values[0]),
        float(values[-1]),
        float(np.min(values)),
        float(values[top]),
        int(steps[top]),
        int(steps[-1]),
        len(values),
        len(series) - len(values),
    )


def widest_start(weights: Iterable[Mapping[str, Any]]) -> float | None:
    """The largest spectral norm that a usual initialisation gives any of these matrices.

    For a random m x n matrix with standard deviation s it is about s (sqrt m + sqrt n), with s at most Kaiming's
    sqrt(2 / fan-in).
    """
    norms = []
    for weight in weights:
        shape, fan_in = weight.get("shape"), number(weight.get("fan_in"))
        if fan_in and isinstance(shape, list) and len(shape) >= 2 and all(number(size) for size in shape):
            rows, columns = float(shape[0]), float(np.prod([float(size) for size in shape[1:]]))
            norms.append(float(np.sqrt(2 / fan_in) * (np.sqrt(rows) + np.sqrt(columns))))
    return max(norms, default=None)


def smoothed(series: Series, span: int) -> Series:
    """The exponential moving average of a series' finite values."""
    keep = np.isfinite(series.values)
    return Series(series.name, series.steps[keep], ema(series.values[keep], span), series.times[keep])


def gaps(steps: Steps) -> Steps:
    """The last step before each gap, in which a regularly recorded series omits many steps in a row."""
    if len(steps) < _GAPS_FROM:
        return steps[:0]
    apart = np.diff(steps)
    usual = float(np.median(apart[thinned(len(apart), _SAMPLED)]))
    return steps[np.flatnonzero(apart > _GAP * usual)]


class Spread:
    """The spread of several series at their common steps; series are added one at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.steps: Steps = np.empty(0, np.int64)
        self.low: Floats = np.empty(0)
        self.high: Floats = np.empty(0)

    def add(self, series: Series) -> None:
        """Add a series; only finite values above zero are compared."""
        keep = np.isfinite(series.values) & (series.values > 0)
        steps, values = series.steps, series.values
        if not np.all(keep):
            steps, values = steps[keep], values[keep]
        self.count += 1
        if self.count == 1:
            self.steps, self.low, self.high = steps, values, values
            return
        if not np.array_equal(steps, self.steps):
            self.steps, mine, theirs = np.intersect1d(self.steps, steps, assume_unique=True, return_indices=True)
            self.low, self.high, values = self.low[mine], self.high[mine], values[theirs]
        self.low, self.high = np.minimum(self.low, values), np.maximum(self.high, values)

    def widest(self) -> tuple[int, float] | None:
        """The step with the widest spread, and the ratio of largest to smallest value there."""
        if self.count < 2 or not len(self.steps):
            return None
        ratio = self.high / self.low
        index = int(np.argmax(ratio))
        return int(self.steps[index]), float(ratio[index])

    def within(self, times: float) -> tuple[Floats, Floats]:
        """A corridor at every step that contains all series if they are within `times` of each other."""
        middle = np.sqrt(self.low) * np.sqrt(self.high)
        return middle / np.sqrt(times), middle * np.sqrt(times)


def summed(name: str, parts: Iterable[Series]) -> Series | None:
    """The sum of several series at their common steps; None if they have none."""
    total: Series | None = None
    for part in parts:
        total = part if total is None else _added(total, part)
    return None if total is None or not len(total) else Series(name, total.steps, total.values, total.times)


def _added(first: Series, second: Series) -> Series:
    if np.array_equal(first.steps, second.steps):
        return Series(first.name, first.steps, first.values + second.values, first.times)
    steps, mine, theirs = np.intersect1d(first.steps, second.steps, assume_unique=True, return_indices=True)
    return Series(first.name, steps, first.values[mine] + second.values[theirs], first.times[mine])


def share_not_positive(parts: Iterable[Floats]) -> float:
    """The fraction of zeros and negative numbers among the finite values of several series."""
    values = np.concatenate([part[np.isfinite(part)] for part in parts] or [np.empty(0)])
    return float(np.mean(values <= 0)) if len(values) else 0.0


@dataclass(frozen=True)
class MeanOfRuns:
    """The mean of several series and its standard deviation, over the steps that all of them cover."""

    steps: npt.NDArray[np.int64]
    mean: npt.NDArray[np.float64]
    sigma: npt.NDArray[np.float64]


def mean_and_sigma(series: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]) -> MeanOfRuns | None:
    """Series of several runs as one, at the steps of the first; None if they share fewer than two steps."""
    finite = [(steps[np.isfinite(values)], values[np.isfinite(values)]) for steps, values in series]
    if not finite or any(len(steps) < 2 for steps, _ in finite):
        return None
    first, last = max(int(steps[0]) for steps, _ in finite), min(int(steps[-1]) for steps, _ in finite)
    grid = finite[0][0][(finite[0][0] >= first) & (finite[0][0] <= last)]
    if len(grid) < 2:
        return None
    values = np.stack([np.interp(grid, steps, at) for steps, at in finite])
    return MeanOfRuns(grid, values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(grid)))


def elapsed(series: Series) -> Floats | None:
    """Seconds since the first point of a series, never falling; None if its times do not show any."""
    if len(series) < 2:
        return None
    seconds: Floats = np.maximum.accumulate(series.times - series.times[0])
    return seconds if np.all(np.isfinite(seconds)) and seconds[-1] > 0 else None


def running_total(series: Series) -> Floats | None:
    """The sum of a series up to each point; None if it is not finite or has fewer than two points."""
    if len(series) < 2 or not np.all(np.isfinite(series.values)):
        return None
    return np.cumsum(np.maximum(series.values, 0.0))
