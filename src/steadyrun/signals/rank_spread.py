"""One quantity over the ranks of a job: its range and median at each step, and the rank that differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.records import Series
from steadyrun.signals.curves import Floats
from steadyrun.signals.ranks import Matrix, Ranks, Steps

_DRAWN_WHOLE = 64  # ranks: up to this many the range is from the lowest to the highest, of more from 5% to 95%
_FEWEST_RANKS = 3  # ranks: of two, neither is farther from the median
_WHOLE, _BAND = (0.0, 0.5, 1.0), (0.05, 0.5, 0.95)  # quantiles over ranks
_PIECE = 2_000_000  # numbers to sort at a time


@dataclass(frozen=True)
class RankSpread:
    """Lowest, median and highest finite value over the ranks at each step; NaN if no rank has a finite value."""

    ranks: int
    steps: Steps
    low: Floats
    median: Floats
    high: Floats

    @property
    def words(self) -> str:
        """The ends of the range."""
        return "lowest to highest" if self.ranks <= _DRAWN_WHOLE else "5% to 95%"

    def between(self, first: float, last: float) -> RankSpread:
        """Only the steps from `first` to `last`."""
        keep = (self.steps >= first) & (self.steps <= last)
        return RankSpread(self.ranks, self.steps[keep], self.low[keep], self.median[keep], self.high[keep])

    def envelope(self, most: int) -> tuple[Steps, Floats, Floats]:
        """Steps, lowest and highest values of at most `most` stretches, so that no spike is lost."""
        there = np.isfinite(self.low) & np.isfinite(self.high)
        steps, low, high = self.steps[there], self.low[there], self.high[there]
        if len(steps) <= most:
            return steps, low, high
        starts = np.unique(np.linspace(0, len(steps), most, endpoint=False).astype(int))
        return steps[starts], np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)


def rank_spread(matrix: Matrix) -> RankSpread | None:
    """The spread of a quantity over the ranks that recorded it; None if fewer than two did."""
    if len(matrix.ranks) < 2:
        return None
    fractions = _WHOLE if len(matrix.ranks) <= _DRAWN_WHOLE else _BAND
    rows = max(1, _PIECE // len(matrix.ranks))
    parts = [_quantiles(matrix.values[start : start + rows], fractions) for start in range(0, len(matrix.steps), rows)]
    low, median, high = np.concatenate(parts, axis=1) if parts else np.empty((len(_BAND), 0))
    return RankSpread(len(matrix.ranks), matrix.steps, low, median, high)


def _quantiles(values: Floats, fractions: tuple[float, ...]) -> Floats:
    """Quantiles of the finite values of each row; NaN for a row without any."""
    finite = np.where(np.isfinite(values), values, np.nan)
    found = np.full((len(fractions), len(values)), np.nan)
    some = ~np.all(np.isnan(finite), axis=1)
    if np.any(some):
        found[:, some] = np.nanquantile(finite[some], fractions, axis=1)
    return found


def farthest(matrix: Matrix, spread: RankSpread) -> int | None:
    """The rank that is farther from the median than every other rank at most steps; None if there is none."""
    if len(matrix.ranks) < _FEWEST_RANKS or not len(matrix.steps):
        return None
    with np.errstate(invalid="ignore"):
        away = np.abs(matrix.values - spread.median[:, None])
    away = np.where(np.isfinite(away), away, -1.0)
    second, first = np.partition(away, -2, axis=1)[:, -2:].T
    winners = np.argmax(away, axis=1)[first > second]
    counts = np.bincount(winners, minlength=len(matrix.ranks))
    best = int(np.argmax(counts))
    return matrix.ranks[best] if 2 * int(counts[best]) > len(matrix.steps) else None


def rank_series(ranks: Ranks, rank: int, name: str) -> Series | None:
    """One series of one rank as recorded, with non-finite values; None if it has none."""
    steps, values = ranks.series(rank, name)
    return Series(name, steps, values, np.full(len(steps), np.nan)) if len(steps) else None
