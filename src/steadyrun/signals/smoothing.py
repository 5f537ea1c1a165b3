"""Averages that run along a series, and a robust scale. All in linear time, all aligned with their input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_GROWTH = 12.0  # within one block the weights of an EMA span at most e**12: no digits are lost
_NORMAL = 1.4826  # the median absolute deviation of a normal distribution, times this, is its deviation


def ema(values: Floats, span: int) -> Floats:
    """The exponential moving average with `alpha = 2 / (span + 1)`, started without bias.

    Early values are weighted means of what there is, so the first equals its input.
    """
    total = _decayed_sum(values, span)
    weight = _decayed_sum(np.ones(len(values)), span)
    return total / weight


def _decayed_sum(values: Floats, span: int) -> Floats:
    """`y[i] = d y[i-1] + x[i]` without a loop over the points: block by block, as weighted cumulative sums."""
    decay = 1 - 2 / (span + 1)
    if decay <= 0 or not len(values):
        return np.array(values, float)
    size = max(1, int(_GROWTH / -np.log(decay)))
    powers = decay ** np.arange(size)
    result = np.empty(len(values))
    carried = 0.0
    for start in range(0, len(values), size):
        block = values[start : start + size]
        reach = powers[: len(block)]
        result[start : start + len(block)] = reach * (np.cumsum(block / reach) + carried * decay)
        carried = result[start + len(block) - 1]
    return result


def rolling_mean(values: Floats, window: int) -> Floats:
    """The mean of the last `window` values at each place; of all there are before the first full window."""
    return _window_sums(values, window) / _window_counts(len(values), window)


def rolling_deviation(values: Floats, window: int) -> Floats:
    """The standard deviation of the last `window` values at each place."""
    # Around the overall level, so that squares of a large mean do not drown the deviation.
    centred = values - np.median(values) if len(values) else np.array(values, float)
    counts = _window_counts(len(values), window)
    mean = _window_sums(centred, window) / counts
    return np.sqrt(np.maximum(0.0, _window_sums(centred**2, window) / counts - mean**2))


def _window_counts(length: int, window: int) -> Floats:
    return np.minimum(np.arange(1, length + 1), max(1, window)).astype(float)


def _window_sums(values: Floats, window: int) -> Floats:
    if not len(values):
        return np.array(values, float)
    sums = np.cumsum(values, dtype=np.longdouble)
    ahead = sums[max(1, window) :] - sums[: -max(1, window)]
    return np.concatenate([sums[: max(1, window)], ahead]).astype(float)


@dataclass(frozen=True)
class RobustScale:
    """A middle and a spread that a few wild values do not move."""

    middle: float
    spread: float


def robust_scale(values: Floats) -> RobustScale:
    """Median, and the deviation estimated from the median absolute deviation."""
    if not len(values):
        return RobustScale(float("nan"), float("nan"))
    middle = float(np.median(values))
    return RobustScale(middle, float(np.median(np.abs(values - middle))) * _NORMAL)


def thinned(length: int, most: int) -> npt.NDArray[np.int64]:
    """At most `most` evenly spaced places of a long series, its ends among them."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))
