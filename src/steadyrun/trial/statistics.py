"""Effects of changes with confidence intervals, paired by seed and compared with the spread between seeds.

Every trial measures two things: the loss at the last mark, on held-out training batches (or validation data), as a
fraction of the attainable fall; and the steps that a twin needs to reach the last loss of its unchanged twin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steadyrun.trial.curve import Curve

# Two-sided 95% of Student's distribution by degrees of freedom.
_STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
_MOST_SEEDS = 10_000
_POWER = 2.8  # standard errors of a difference that is detected at 95% in four of five trials


@dataclass(frozen=True)
class Effect:
    """The gain of a change as a fraction of the attainable fall; positive if it helps."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def student(freedom: int) -> float:
    """The factor of a two-sided 95% interval."""
    if freedom < 1:
        return math.inf
    return _STUDENT.get(freedom) or (2.1 if freedom < 20 else 2.0)


def effect(own: Sequence[float], changed: Sequence[float], own_spread: float, scale: float) -> Effect:
    """The mean of paired differences; their spread is pooled with that of the unchanged twins."""
    differences = [(a - b) / scale for a, b in zip(own, changed, strict=True)]
    mean, count = float(np.mean(differences)), len(differences)
    if not math.isfinite(mean):
        return Effect(-math.inf, -math.inf, -math.inf, count)
    paired = float(np.var(differences, ddof=1)) if count > 1 else 0.0
    whole = (own_spread / scale) ** 2
    pooled = math.sqrt((paired + whole) / 2 if count > 1 else whole)
    half = student(max(1, 2 * (count - 1))) * pooled / math.sqrt(count) if count > 1 else student(2) * pooled
    return Effect(mean, mean - half, mean + half, count)


def spread(ends: Sequence[float]) -> float:
    """The standard deviation between seeds; 0 for a single seed."""
    finite = [end for end in ends if math.isfinite(end)]
    return float(np.std(finite, ddof=1)) if len(finite) > 1 else 0.0


def seeds_needed(found: Effect) -> int | None:
    """The number of seeds that resolves a difference of this size; None if it is zero."""
    if not math.isfinite(found.mean) or found.mean == 0 or found.seeds < 2:
        return None
    deviation = (found.high - found.mean) * math.sqrt(found.seeds) / student(2 * (found.seeds - 1))
    return min(_MOST_SEEDS, max(found.seeds, math.ceil((_POWER * deviation / abs(found.mean)) ** 2)))


def seeds_for(deviation: float, difference: float) -> int | None:
    """The number of seed pairs that resolves a difference between two means; None if unknown."""
    if not math.isfinite(deviation) or not difference > 0:
        return None
    return min(_MOST_SEEDS, max(2, math.ceil(2 * (_POWER * deviation / difference) ** 2)))


def steps_to(curve: Curve, split: str, level: float) -> float:
    """The steps until a twin reaches this loss, interpolated between marks; infinity if never."""
    losses = curve.losses.get(split, [])
    for index, loss in enumerate(losses):
        if loss <= level:
            if index == 0:
                return 0.0
            before = losses[index - 1]
            part = (before - level) / (before - loss) if before > loss else 1.0
            return curve.marks[index - 1] + part * (curve.marks[index] - curve.marks[index - 1])
    return math.inf
