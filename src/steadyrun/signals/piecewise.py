"""A curve in few points."""

from __future__ import annotations

_RESOLUTION = 1e-4  # of the largest rate: straight lines between the points are this close


def knots(rates: list[float]) -> tuple[tuple[int, float], ...]:
    """The fewest points, greedily, between which straight lines stay within the resolution."""
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
