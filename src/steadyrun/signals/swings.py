"""How often a curve climbs far and comes back: swings that are neither noise nor a single spike."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steadyrun.signals.curves import OF_NORMAL, Floats

_FEWEST_POINTS = 3  # points of a stretch: of fewer a single one decides the median
_HALF = 2  # of the curve: what swings only before that has come to rest


@dataclass(frozen=True)
class Swings:
    """Swings of at least a size: how many, and the first place of each."""

    count: int
    places: tuple[int, ...]


def swings(values: Floats, size: float, parts: int) -> Swings:
    """Climbs by at least `size` that come back, among the medians of `parts` stretches of the second half.

    Single points are spikes and do not move a median: fewer stretches are compared if they would be shorter than three.
    """
    later = values[len(values) // _HALF :]
    width = _width(len(later), parts)
    count = len(later) // width
    if count < 2 or not size > 0:
        return Swings(0, ())
    means = np.median(later[: count * width].reshape(count, width), axis=1)
    places = [len(values) // _HALF + index * width for index in _turns(means, size)]
    return Swings(len(places), tuple(places))


def noise_of_a_mean(values: Floats, parts: int) -> float:
    """The error of the mean of a stretch by chance, from neighbouring values: a slow swing does not count as noise."""
    later = values[len(values) // _HALF :]
    if len(later) < 2:
        return math.inf
    width = _width(len(later), parts)
    steps = np.diff(later)
    usual = OF_NORMAL * float(np.median(np.abs(steps - np.median(steps))))  # the swings themselves are outliers
    return usual / math.sqrt(2 * width)


def _width(length: int, parts: int) -> int:
    return max(_FEWEST_POINTS, length // parts)


def _turns(means: Floats, size: float) -> list[int]:
    """The tops of all climbs by at least `size` that are followed by a fall by at least `size`."""
    tops: list[int] = []
    low, top, climbing = float(means[0]), 0, False
    for index, mean in enumerate(means):
        if climbing:
            if mean > means[top]:
                top = index
            elif means[top] - mean >= size:
                tops.append(top)
                low, climbing = float(mean), False
        elif mean < low:
            low = float(mean)
        elif mean - low >= size:
            top, climbing = index, True
    return tops
