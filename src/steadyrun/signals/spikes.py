"""Loss spikes: where they begin, how high they go, when they are over. Overlapping flags are one spike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.run_signals import Points
from steadyrun.signals.smoothing import Floats, rolling_deviation, rolling_mean

_SETTLED = 5  # points whose mean must be back: one lucky point does not end a spike


@dataclass(frozen=True)
class Spike:
    """One spike, by indices of points; `level` and `deviation` are those of the window before it."""

    start: int
    peak: int
    end: int | None  # the first index at which the loss is back; None where it never is
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
        """Points until the loss is back."""
        return None if self.end is None else self.end - self.start


def spikes(loss: Points, window: int, sigmas: float, back: float) -> list[Spike]:
    """All spikes: points above the mean of the `window` before them by `sigmas` deviations, joined while not back.

    A spike is over when the loss (a mean of five points) is within `back` deviations of the mean before it.
    """
    values = loss.values
    if len(values) <= window:
        return []
    mean = np.concatenate([[np.nan], rolling_mean(values, window)[:-1]])
    deviation = np.concatenate([[np.nan], rolling_deviation(values, window)[:-1]])
    flagged = values > mean + sigmas * deviation
    flagged[:window] = False
    settled = rolling_mean(values, _SETTLED)
    all_spikes: list[Spike] = []
    free_from = 0
    for start in np.flatnonzero(flagged).tolist():
        if start < free_from:
            continue
        spike = _follow(loss, start, float(mean[start]), float(deviation[start]), settled, back)
        all_spikes.append(spike)
        if spike.end is None:
            break
        free_from = spike.end
    return all_spikes


def _follow(loss: Points, start: int, level: float, deviation: float, settled: Floats, back: float) -> Spike:
    limit = level + back * deviation
    back_at = _first_below(settled, start + _SETTLED, limit)
    single = np.flatnonzero(loss.values[start + 1 : start + 1 + _SETTLED] <= limit)
    end = back_at
    if back_at is not None and len(single) >= _SETTLED - 1:  # back at once: a single point stood out
        end = start + 1 + int(single[0])
    stop = len(loss) if end is None else end
    peak = start + int(np.argmax(loss.values[start:stop]))
    return Spike(start, peak, end, loss.step_at(start), loss.step_at(peak), float(loss.values[peak]), level, deviation)


def _first_below(values: Floats, start: int, limit: float) -> int | None:
    """The first index from `start` on with a value at or below the limit, looked for in growing stretches."""
    size = 64
    while start < len(values):
        below = np.flatnonzero(values[start : start + size] <= limit)
        if len(below):
            return start + int(below[0])
        start, size = start + size, 2 * size
    return None
