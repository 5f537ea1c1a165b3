"""Loss spikes: start, height and end, in dense and sparse records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.records import Series
from steadyrun.signals.curves import Floats, apart_from_neighbours, ema, rolling_deviation, rolling_mean
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import counted, shown

# A series around one step: its level before, its peak, its largest rise, its level afterwards.


def smoothed_points(points: Points, span: int) -> Points:
    """The exponential moving average of a series, at its steps."""
    return Points(points.name, points.steps, ema(points.values, span))


def ema_noise(span: int) -> float:
    """The σ of an exponential moving average of independent values, as a fraction of theirs."""
    alpha = 2 / (span + 1)
    return float(np.sqrt(alpha / (2 - alpha)))


def before(points: Points, step: float, window: int) -> Floats:
    """The last `window` values before a step."""
    end = int(np.searchsorted(points.steps, step, side="left"))
    return points.values[max(0, end - window) : end]


def ema_before(points: Points, step: float, span: int) -> float | None:
    """The exponential moving average just before a step; None if there are no earlier points."""
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
    """The largest rise between neighbouring points: its step, the value before, the value there."""
    if len(points) < 2:
        return None
    index = int(np.argmax(np.diff(points.values)))
    return points.step_at(index + 1), float(points.values[index]), float(points.values[index + 1])


def value_at(series: Series, step: int) -> float | None:
    """The value recorded at exactly this step, finite or not."""
    values = series.values[series.steps == step]
    return float(values[-1]) if len(values) else None


def times_before(series: Series, step: int, window: int, fewest: int) -> tuple[float, float] | None:
    """The value at a step and the mean of the finite values before it; None if not known or fewer than `fewest`."""
    now = value_at(series, step)
    early = series.values[(series.steps < step) & np.isfinite(series.values)][-window:]
    if now is None or len(early) < fewest or float(np.mean(early)) <= 0:
        return None
    return now, float(np.mean(early))


# A jump of the loss in a record too short for a standard deviation: an excerpt, or a very sparse log.


_FEWEST = 2  # points before a jump


@dataclass(frozen=True)
class LossJump:
    """The highest point of a jump, and its description."""

    step: int
    times: float
    words: str
    began: int


def jump_of(run: Signals, times: float, clear: float, *, rose: float, look_back: int) -> LossJump | None:
    """The highest loss that is `times` the median of the points before it; None if there is none.

    In logarithms it must be `clear` times as high as the largest distance of any other point from its neighbours.
    The gradient rose before the jump if it is `rose` times its median, within `look_back` points.
    """
    loss = run.points("loss")
    values = loss.values
    before = np.array([float(np.median(values[:index])) for index in range(_FEWEST, len(values))])
    later = values[_FEWEST:]
    if not len(later) or float(np.min(values)) <= 0:
        return None
    first = np.flatnonzero(later > times * before)
    if not len(first):
        return None
    start = int(first[0])
    over = np.flatnonzero(later[start:] <= times * before[start])
    end = start + int(over[0]) if len(over) else len(later)
    peak = start + int(np.argmax(later[start:end]))
    level, high = float(before[start]), float(later[peak])
    parts = (np.log(values[: _FEWEST + start]), np.log(later[end:]))
    moves = np.abs(np.concatenate([apart_from_neighbours(part) for part in parts]))
    if not len(moves) or np.log(high / level) <= clear * float(np.max(moves)):
        return None
    step, began = loss.step_at(_FEWEST + peak), loss.step_at(_FEWEST + start)
    words = (
        f"The loss jumps from {shown(level)} to {shown(later[start])} at step {began}"
        + (f" and {shown(high)} at step {step}" if peak > start else "")
        + f" ({shown(high / level)} times, limit {times:g})"
        + _back(run, loss, _FEWEST + end, times * level)
        + _lead(run.maybe("grad_norm"), began, rose, look_back)
        + _scale(run.maybe("loss_scale"), began, step)
        + "."
    )
    return LossJump(step, high / level, words, began)


def _back(run: Signals, loss: Points, end: int, limit: float) -> str:
    """In words: the recovery of the loss, in the same part of the record or after a gap."""
    if end < len(loss):
        return f"; it is back at {shown(loss.values[end])} at step {loss.step_at(end)}"
    whole = run.raw("loss")
    after = np.flatnonzero((whole.steps > loss.steps[-1]) & (whole.values <= limit))
    if not len(after):
        return ""
    return f"; after a gap in the record it is {shown(whole.values[after[0]])} at step {whole.steps[after[0]]}"


def _lead(norms: Points | None, began: int, rose: float, look_back: int) -> str:
    """In words: the gradient norm rose before the loss; empty otherwise."""
    if norms is None:
        return ""
    jump = int(np.searchsorted(norms.steps, began))
    for index in range(max(1, jump - look_back), jump):
        level = float(np.median(norms.values[:index]))
        if level > 0 and np.all(norms.values[index : jump + 1] > rose * level):
            norm = norms.values[index]
            words = f"{shown(norm)} at step {norms.step_at(index)}, normally {shown(level)}"
            steps = counted(began - norms.step_at(index), "step")
            return f". The gradient norm rose {steps} before the loss: {words}"
    return ""


def _scale(scale: Points | None, began: int, peak: int) -> str:
    """In words: the loss scale fell with the jump; empty otherwise."""
    if scale is None:
        return ""
    before, during = scale.values[scale.steps < began], scale.values[(scale.steps >= began) & (scale.steps <= peak)]
    if not len(before) or not len(during) or float(np.min(during)) >= float(before[-1]):
        return ""
    return f". The loss scale fell from {shown(before[-1])} to {shown(np.min(during))} during the jump"


# Loss spikes: start, height and end. Overlapping flags are one spike.


_STRETCH = 64  # points that are searched first


@dataclass(frozen=True)
class Spike:
    """One spike by indices of points; `level` and `deviation` are mean and σ of the window before it."""

    start: int
    peak: int
    end: int | None  # the first index at which the loss has recovered; None if it never does
    start_step: int
    peak_step: int
    value: float
    level: float
    deviation: float

    @property
    def sigmas(self) -> float:
        return (self.value - self.level) / self.deviation if self.deviation > 0 else float("inf")

    @property
    def length(self) -> int | None:
        """The number of points until the loss has recovered."""
        return None if self.end is None else self.end - self.start


def spikes(loss: Points, window: int, sigmas: float, back: float, settled: int) -> list[Spike]:
    """All spikes: points `sigmas` standard deviations above the mean of the `window` before them.

    A spike ends when the loss (a mean of `settled` points) is within `back` standard deviations of that mean; points
    before its end belong to the same spike.
    """
    values = loss.values
    if len(values) <= window:
        return []
    mean = np.concatenate([[np.nan], rolling_mean(values, window)[:-1]])
    deviation = np.concatenate([[np.nan], rolling_deviation(values, window)[:-1]])
    flagged = values > mean + sigmas * deviation
    flagged[:window] = False
    level = rolling_mean(values, settled)
    all_spikes: list[Spike] = []
    free_from = 0
    for start in np.flatnonzero(flagged).tolist():
        if start < free_from:
            continue
        spike = _follow(loss, start, float(mean[start]), float(deviation[start]), back, level, settled)
        all_spikes.append(spike)
        if spike.end is None:
            break
        free_from = spike.end
    return all_spikes


def _follow(
    loss: Points, start: int, level: float, deviation: float, back: float, means: Floats, settled: int
) -> Spike:
    limit = level + back * deviation
    back_at = _first_below(means, start + settled, limit)
    single = np.flatnonzero(loss.values[start + 1 : start + 1 + settled] <= limit)
    end = back_at
    if back_at is not None and len(single) >= settled - 1:  # back at once: a single point stood out
        end = start + 1 + int(single[0])
    stop = len(loss) if end is None else end
    peak = start + int(np.argmax(loss.values[start:stop]))
    return Spike(start, peak, end, loss.step_at(start), loss.step_at(peak), float(loss.values[peak]), level, deviation)


def _first_below(values: Floats, start: int, limit: float) -> int | None:
    """The first index from `start` on with a value at or below the limit, searched in growing parts."""
    size = _STRETCH
    while start < len(values):
        below = np.flatnonzero(values[start : start + size] <= limit)
        if len(below):
            return start + int(below[0])
        start, size = start + size, 2 * size
    return None
