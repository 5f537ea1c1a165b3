"""The effect of label smoothing on a cross-entropy."""

from __future__ import annotations

import math


def floor(smoothing: float, classes: int) -> float:
    """The lowest possible cross-entropy: the entropy of the smoothed target."""
    rest = smoothing / classes
    top = 1 - smoothing + rest
    return sum(-count * p * math.log(p) for count, p in ((1, top), (classes - 1, rest)) if p > 0)
