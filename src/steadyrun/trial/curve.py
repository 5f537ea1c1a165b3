"""The result of a twin: its losses at the marks and other observations. Workers return it as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Curve:
    """The losses of a twin at the marks, and other observations."""

    factor: str
    seed: int
    steps: int
    marks: list[int]
    losses: dict[str, list[float]]  # by split, one per reached mark
    training: list[float] = field(default_factory=list)  # the mean loss of the steps up to each mark
    terms: list[list[float]] = field(default_factory=list)  # of the deciding split: each term, per mark
    unmoved: list[str] = field(default_factory=list)  # modules without a changed parameter
    unregistered: list[str] = field(default_factory=list)  # with a gradient and in no optimizer
    raised: str = ""
    stopped: int | None = None  # the step of an early stop
    drawn: dict[str, int | None] = field(default_factory=dict)  # a `Drawn` of the training batches
    start: str = ""  # a checksum of the first weights, equal for two seeds if the program seeds itself
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Curve:
        """A curve from JSON, in which non-finite numbers may be strings."""
        known = {name: value for name, value in content.items() if name in cls.__dataclass_fields__}
        known["losses"] = {split: [float(loss) for loss in losses] for split, losses in content["losses"].items()}
        known["training"] = [float(loss) for loss in content.get("training", [])]
        known["terms"] = [[float(value) for value in terms] for terms in content.get("terms", [])]
        return cls(**known)

    def end(self, split: str) -> float:
        """The loss at the last mark; infinity for a twin that stopped early or raised."""
        losses = self.losses.get(split) or []
        if self.raised or self.stopped is not None or not losses or not math.isfinite(losses[-1]):
            return math.inf
        return losses[-1]


@dataclass(frozen=True)
class Drawn:
    """The numbers of batches and examples from the training loader, and how many of them differ."""

    batches: int
    different_batches: int
    examples: int = 0  # 0 if the batches cannot be split
    different_examples: int = 0
    dataset: int | None = None  # its number of examples, if known
