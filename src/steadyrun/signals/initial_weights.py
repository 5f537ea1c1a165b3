"""The initial weights: statistics and role of each parameter at the start."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Signals

_LAYERS = ("linear", "conv", "embedding", "lstm", "gru", "rnn", "multiheadattention", "bilinear", "norm")


@dataclass(frozen=True)
class Weight:
    """The statistics of one parameter at the start."""

    name: str
    kind: str
    size: int
    fan_in: float | None
    mean: float
    std: float
    low: float
    high: float
    dimensions: int

    @property
    def of_a_layer(self) -> bool:
        """Whether the module is a known layer type; how other modules use their weights is unknown."""
        return any(kind in self.kind.lower() for kind in _LAYERS)

    @property
    def role(self) -> str:
        if "norm" in self.kind.lower():
            return "norm"
        if self.name.rpartition(".")[2].startswith("bias"):
            return "bias"
        if self.dimensions < 2:
            return "bias" if self.of_a_layer else "other"
        return "embedding" if "embedding" in self.kind.lower() else "matrix"

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def constant(self) -> bool:
        """Whether all its values are equal: then the units it feeds do not differ."""
        return self.low == self.high and self.size > 1

    @property
    def too_wide(self) -> float:
        """σ relative to Kaiming's rule, sqrt(2 / fan-in), the widest in common use."""
        return self.std / math.sqrt(2 / self.fan_in) if self.fan_in else 0.0

    def off_centre(self, errors: float) -> float:
        """The distance of the mean from zero beyond chance."""
        return max(0.0, abs(self.mean) - errors * self.std / math.sqrt(max(1, self.size)))


def initial_weights(run: Signals) -> list[Weight]:
    known = [weight for entry in run.listed("initial_weights") if (weight := _weight(entry)) is not None]
    if not known:
        raise MissingSignal("initial_weights")
    return known


def _weight(entry: dict[str, Any]) -> Weight | None:
    mean, std = number(entry.get("mean")), number(entry.get("std"))
    low, high = number(entry.get("min")), number(entry.get("max"))
    shape = entry.get("shape")
    if mean is None or std is None or low is None or high is None or not isinstance(shape, list):
        return None
    size = math.prod(n for n in shape if isinstance(n, int))
    name, kind, fan_in = str(entry.get("name")), str(entry.get("module", "")), number(entry.get("fan_in"))
    return Weight(name, kind, size, fan_in, mean, std, low, high, len(shape))


def tied_weights(run: Signals) -> set[str]:
    tied = run.about("model").get("tied")
    return (
        {str(name) for names in tied if isinstance(names, list) for name in names} if isinstance(tied, list) else set()
    )
