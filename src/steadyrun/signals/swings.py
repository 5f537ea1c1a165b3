"""Swings of a curve: large rises that return, beyond noise and single spikes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadyrun.signals.curves import OF_NORMAL, Floats

_FEWEST_POINTS = 3  # points per part: with fewer a single point decides the median
_HALF = 2  # of the curve: swings that end before it do not count


@dataclass(frozen=True)
class Swings:
    """Swings of at least a given size: how many, and the index of each."""

    count: int
    places: tuple[int, ...]


def swings(values: Floats, size: float, parts: int) -> Swings:
    """Rises by at least `size` that return, among the medians and the means of `parts` parts of the second half.

    Single points are spikes and do not move a median; a loss that jumps between two levels from point to point does not
    move a mean. Parts have at least three points.
    """
    later = values[len(values) // _HALF :]
    width = _width(len(later), parts)
    count = len(later) // width
    if count < 2 or not size > 0:
        return Swings(0, ())
    cut = later[: count * width].reshape(count, width)
    tops, of_means = _turns(np.median(cut, axis=1), size), _turns(np.mean(cut, axis=1), size)
    places = [len(values) // _HALF + index * width for index in tops[: len(of_means)]]
    return Swings(len(places), tuple(places))


def noise_of_a_mean(values: Floats, parts: int) -> float:
    """The standard error of the mean of a part, from neighbouring values: slow swings do not count as noise."""
    later = values[len(values) // _HALF :]
    if len(later) < 2:
        return math.inf
    width = _width(len(later), parts)
    steps = np.diff(later)
    usual = OF_NORMAL * float(np.median(np.abs(steps - np.median(steps))))  # the swings themselves are outliers
    return usual / math.sqrt(2 * width)


def _width(length: int, parts: int) -> int:
    return max(_FEWEST_POINTS, length // parts)


def _turns(levels: Floats, size: float) -> list[int]:
    """The peaks of all rises by at least `size` that are followed by a fall by at least `size`."""
    tops: list[int] = []
    low, top, climbing = float(levels[0]), 0, False
    for index, level in enumerate(levels):
        if climbing:
            if level > levels[top]:
                top = index
            elif levels[top] - level >= size:
                tops.append(top)
                low, climbing = float(level), False
        elif level < low:
            low = float(level)
        elif level - low >= size:
            top, climbing = index, True
    return tops
