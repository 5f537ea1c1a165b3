"""The levels of a log's guide, mostly the loss: whether it goes on after the steps fell, or starts over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from steadyrun.signals.curves import Floats

LEVEL = 5  # points that a level is the median of
_MEMORY = 20  # points that the noise is measured on: a median of fewer is noisy itself
_CLEARLY = 0.5  # of the distance: a loss this much nearer to its last level than to its first goes on
_JUMP = 3.0  # σ of the noise: medians of five points differ by 0.8 σ, so this is beyond chance in hundreds of falls
_TO_SIGMA = 0.954  # the median difference of neighbours, in σ of normal noise: 0.6745 times the square root of two


@dataclass
class GuideLevels:
    """The first and the last values of the guide in a run."""

    began: list[float] = field(default_factory=list)
    latest: list[float] = field(default_factory=list)

    def take(self, values: Floats) -> None:
        """Remember values that follow those before."""
        self.began += values[: max(LEVEL - len(self.began), 0)].tolist()
        self.latest = [*self.latest, *values[-_MEMORY:].tolist()][-_MEMORY:]

    def goes_on(self, after: Floats) -> bool:
        """Whether values are clearly nearer to the last ones than to the first ones of the run."""
        from_last, from_first = self._distances(after)
        return from_last < _CLEARLY * from_first

    def surely_goes_on(self, after: Floats) -> bool:
        """The same of whole levels that share no point, with a distance from the first that is beyond noise."""
        known = len(after) >= LEVEL and len(self.latest) >= 2 * LEVEL
        return known and self.goes_on(after) and self._distances(after)[1] > _JUMP * self._noise()

    def jumps_back(self, after: Floats) -> bool:
        """Whether values are nearer to the first ones of the run, and differ from the last ones by more than noise.

        A loss that never changes shows nothing: the counter decides.
        """
        from_last, from_first = self._distances(after)
        if np.isnan(from_last):
            return True  # no level is known: the counter decides
        return from_first <= from_last and from_last >= _JUMP * self._noise()

    def _distances(self, after: Floats) -> tuple[float, float]:
        if not len(after) or not self.began:
            return np.nan, np.nan
        level = float(np.median(after))
        return abs(level - float(np.median(self.latest[-LEVEL:]))), abs(level - float(np.median(self.began)))

    def _noise(self) -> float:
        """The σ of the last values, by the differences of neighbours: a descent does not count as noise."""
        return float(np.median(np.abs(np.diff(self.latest)))) / _TO_SIGMA if len(self.latest) > 1 else 0.0
