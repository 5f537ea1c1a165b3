"""Curves: moving averages, a robust scale, slopes, two trend tests, and a curve reduced to a few points."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# A curve reduced to a few points.


_RESOLUTION = 1e-4  # of the largest rate: how close the straight lines between the points stay


def knots(rates: list[float]) -> tuple[tuple[int, float], ...]:
    """The fewest points, chosen greedily, whose straight connections stay within the resolution."""
    tolerance = _RESOLUTION * max(abs(rate) for rate in rates)
    kept = [0]
    low, high = float("-inf"), float("inf")
    for index in range(1, len(rates)):
        start = kept[-1]
        span, rise = index - start, rates[index] - rates[start]
        if not low <= rise / span <= high:
            kept.append(index - 1)
            start, span, rise = index - 1, 1, rates[index] - rates[index - 1]
            low, high = float("-inf"), float("inf")
        low = max(low, (rise - tolerance) / span)
        high = min(high, (rise + tolerance) / span)
    if kept[-1] != len(rates) - 1:
        kept.append(len(rates) - 1)
    return tuple((index, rates[index]) for index in kept)


# Slopes, and a trend test that is robust against correlated noise.


_BLOCKS = 10


@dataclass(frozen=True)
class Trend:
    """A straight line through block means: its slope per step, and the slope in standard errors.

    Neighbouring points of a loss curve are correlated; means over blocks hardly are, so the error is right. With ten
    blocks, |t| exceeds 3.4 by chance in 1 of 100 series without a trend.
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
    """The trend of y over x, tested on the means of `blocks` equal parts (fewer if there are fewer points)."""
    parts = min(blocks, len(x) // 2) if len(x) >= 2 * blocks else len(x)
    if parts <= 2:
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


def largest_rise(values: Floats) -> float:
    """The largest rise from end to end that these values may hide: two standard errors above the fitted rise."""
    line = trend(np.arange(len(values), dtype=float), values)
    rise = line.end - line.start
    return rise + 2 * abs(rise / line.t) if line.t else rise


def _ratio(rise: float, error: float) -> float:
    if error > 0:
        return rise / error
    return 0.0 if rise == 0 else float(np.copysign(np.inf, rise))


_RANKED = 200  # points to rank, evenly spaced in a longer series: the test compares all pairs
_KENDALL = (5, 18)  # of the variance of the score
_COUNTED = 10  # up to this many points every order is counted; beyond it the score is nearly normal


def chance_of_rise(values: Floats) -> float:
    """The probability that values without a trend rise as steadily as these (Mann-Kendall test, one-sided).

    It needs no scale and no noise level, so it also holds for few points: by chance seven points rise throughout in 1
    of 5040 orders.
    """
    ranked = values[thinned(len(values), _RANKED)] if len(values) else values
    count = len(ranked)
    if count < 2:
        return 1.0
    score = float(sum(np.sum(np.sign(ranked[index + 1 :] - ranked[index])) for index in range(count - 1)))
    if count <= _COUNTED:
        orders = _orders_by_score(count)
        return float(sum(share for reached, share in orders.items() if reached >= score))
    ties = np.unique(ranked, return_counts=True)[1].astype(float)
    pairs, parts = _KENDALL
    tied = float(np.sum(ties * (ties - 1) * (2 * ties + pairs)))
    variance = (count * (count - 1) * (2 * count + pairs) - tied) / parts
    if variance <= 0:
        return 1.0
    return math.erfc((score - 1) / math.sqrt(2 * variance)) / 2


def _orders_by_score(count: int) -> dict[float, float]:
    """The fraction of all orders of `count` values by score: rising pairs minus falling pairs."""
    shares = np.ones(1)  # by the number of pairs that fall
    for size in range(2, count + 1):
        shares = np.convolve(shares, np.full(size, 1 / size))
    pairs = len(shares) - 1
    return {float(pairs - 2 * falls): float(share) for falls, share in enumerate(shares)}


def neighbour_noise(values: Floats) -> float:
    """The standard deviation of values about the mean of their neighbours, which removes a straight trend.

    Few values may be close by chance, so the estimate is widened like Student's distribution.
    """
    if len(values) < _FEWEST_NEIGHBOURS:
        return math.inf
    apart = apart_from_neighbours(values)
    freedom = max(1, len(values) - _FEWEST_NEIGHBOURS + 1)
    return OF_NORMAL * float(np.median(np.abs(apart))) / math.sqrt(_OF_NEIGHBOURS) * (1 + _STUDENT / freedom)


def apart_from_neighbours(values: Floats) -> Floats:
    """The distance of each value from the mean of its two neighbours, without the ends."""
    return values[1:-1] - (values[:-2] + values[2:]) / 2


_OF_NEIGHBOURS = 1.5  # the variance of a value minus the mean of two
_STUDENT = 4  # how fast the quantiles for few values approach those for many
_FEWEST_NEIGHBOURS = 4  # values: fewer do not give a noise level


# Moving averages and a robust scale. All run in linear time and are aligned with their input.


Floats = npt.NDArray[np.float64]

_GROWTH = 12.0  # within one block the weights of an EMA span at most e**12, so no digits are lost
OF_NORMAL = 1.4826  # times the median absolute deviation of a normal distribution gives its σ


def ema(values: Floats, span: int) -> Floats:
    """The exponential moving average with `alpha = 2 / (span + 1)`, without bias at the start.

    Early values are weighted means of the values so far, so the first equals its input.
    """
    total = _decayed_sum(values, span)
    weight = _decayed_sum(np.ones(len(values)), span)
    return total / weight


def _decayed_sum(values: Floats, span: int) -> Floats:
    """Compute `y[i] = d y[i-1] + x[i]` block by block as weighted cumulative sums, without a loop over the points."""
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
    """The mean of the last `window` values at each index; of all values so far before the first full window."""
    return _window_sums(values, window) / _window_counts(len(values), window)


def rolling_deviation(values: Floats, window: int) -> Floats:
    """The standard deviation of the last `window` values at each index."""
    # Centred on the overall level, so that squares of a large mean do not swamp it.
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
    """A level and a spread that a few outliers do not move."""

    middle: float
    spread: float


def robust_scale(values: Floats) -> RobustScale:
    """The median, and σ estimated from the median absolute deviation."""
    if not len(values):
        return RobustScale(float("nan"), float("nan"))
    middle = float(np.median(values))
    return RobustScale(middle, float(np.median(np.abs(values - middle))) * OF_NORMAL)


def thinned(length: int, most: int) -> npt.NDArray[np.int64]:
    """At most `most` evenly spaced indices of a long series, including both ends."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))
