"""A series around one moment: its level before, its peak, its largest step, where it is afterwards."""

from __future__ import annotations

import numpy as np

from steadyrun.records import Series
from steadyrun.signals.run_signals import Points
from steadyrun.signals.smoothing import Floats, ema

_FEW = 5  # points, of which a level is made at least


def smoothed_points(points: Points, span: int) -> Points:
    """The exponential moving average of a series, at its steps."""
    return Points(points.name, points.steps, ema(points.values, span))


def ema_noise(span: int) -> float:
    """The deviation of an exponential moving average of independent values, as a share of theirs."""
    alpha = 2 / (span + 1)
    return float(np.sqrt(alpha / (2 - alpha)))


def before(points: Points, step: float, window: int) -> Floats:
    """The last `window` values before a step."""
    end = int(np.searchsorted(points.steps, step, side="left"))
    return points.values[max(0, end - window) : end]


def ema_before(points: Points, step: float, span: int) -> float | None:
    """The exponential moving average just before a step; None where nothing comes before it."""
    early = points.where(points.steps < step)
    return float(ema(early.values, span)[-1]) if len(early) else None


def between(points: Points, first: float, last: float) -> Points:
    """The points from one step to another, both included."""
    return points.where((points.steps >= first) & (points.steps <= last))


def highest(points: Points) -> tuple[int, float] | None:
    """The step and the value of the highest point."""
    if not len(points):
        return None
    index = int(np.argmax(points.values))
    return points.step_at(index), float(points.values[index])


def largest_rise(points: Points) -> tuple[int, float, float] | None:
    """Where a series rises most from one point to the next: the step, the value before, the value there."""
    if len(points) < 2:
        return None
    index = int(np.argmax(np.diff(points.values)))
    return points.step_at(index + 1), float(points.values[index]), float(points.values[index + 1])


def value_at(series: Series, step: int) -> float | None:
    """What was recorded at exactly this step, finite or not."""
    values = series.values[series.steps == step]
    return float(values[-1]) if len(values) else None


def times_before(series: Series, step: int, window: int) -> tuple[float, float] | None:
    """The value at a step and the mean of the finite ones before it; None where one of them is not known."""
    now = value_at(series, step)
    early = series.values[(series.steps < step) & np.isfinite(series.values)][-window:]
    if now is None or len(early) < _FEW or float(np.mean(early)) <= 0:
        return None
    return now, float(np.mean(early))
