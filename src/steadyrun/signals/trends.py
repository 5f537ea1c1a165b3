"""Slopes, and a trend test that noise between neighbouring points does not fool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.smoothing import Floats

_BLOCKS = 10


@dataclass(frozen=True)
class Trend:
    """A straight line through block means: its slope per step, and that slope in units of its own error.

    Neighbouring points of a loss curve are correlated; means over blocks are hardly so, which keeps the error
    honest. With ten blocks, |t| above 3.4 happens by chance in one of a hundred series without a trend.
    """

    slope: float
    t: float
    start: float  # the line's value at the first point and at the last
    end: float


def slope(x: Floats, y: Floats) -> float:
    """The least-squares slope of y over x; NaN for fewer than two distinct x."""
    centred = x - np.mean(x) if len(x) else x
    spread = float(np.dot(centred, centred))
    return float(np.dot(centred, y)) / spread if spread > 0 else float("nan")


def trend(x: Floats, y: Floats, blocks: int = _BLOCKS) -> Trend:
    """The trend of y over x, tested on the means of `blocks` equal parts (fewer where there are fewer points)."""
    parts = min(blocks, len(x) // 2) if len(x) >= 2 * blocks else len(x)
    if parts < 3:
        return Trend(float("nan"), 0.0, float("nan"), float("nan"))
    edges = np.linspace(0, len(x), parts + 1).astype(int)
    widths = np.diff(edges)
    mean_x = np.add.reduceat(x, edges[:-1]) / widths
    mean_y = np.add.reduceat(y, edges[:-1]) / widths
    rise = slope(mean_x, mean_y)
    middle = float(np.mean(mean_y))
    fitted = middle + rise * (mean_x - np.mean(mean_x))
    centred = mean_x - np.mean(mean_x)
    error = np.sqrt(float(np.sum((mean_y - fitted) ** 2)) / (parts - 2) / float(np.dot(centred, centred)))
    ends = middle + rise * (np.array([x[0], x[-1]]) - np.mean(mean_x))
    return Trend(rise, _ratio(rise, float(error)), float(ends[0]), float(ends[1]))


def _ratio(rise: float, error: float) -> float:
    if error > 0:
        return rise / error
    return 0.0 if rise == 0 else float(np.copysign(np.inf, rise))
