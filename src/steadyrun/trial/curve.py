"""What a twin showed: its losses at the marks, and what else was seen. Workers return it as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Curve:
    """What a twin showed."""

    factor: str
    seed: int
    steps: int
    marks: list[int]
    losses: dict[str, list[float]]  # by split, one per mark that was reached
    training: list[float] = field(default_factory=list)  # the mean loss of the steps up to each mark
    terms: list[list[float]] = field(default_factory=list)  # of validation or what stands for it: each term, per mark
    unmoved: list[str] = field(default_factory=list)  # modules of which no update has changed a parameter
    unregistered: list[str] = field(default_factory=list)  # reached by the gradient, and in no optimizer
    raised: str = ""
    stopped: int | None = None  # the step at which it was stopped early
    drawn: dict[str, int | None] = field(default_factory=dict)  # a `Drawn` of the training batches
    start: str = ""  # of the first weights: the same for two seeds if the program sets its own
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Curve:
        """A curve from JSON; numbers that are not finite may be strings in it."""
        known = {name: value for name, value in content.items() if name in cls.__dataclass_fields__}
        known["losses"] = {split: [float(loss) for loss in losses] for split, losses in content["losses"].items()}
        known["training"] = [float(loss) for loss in content.get("training", [])]
        known["terms"] = [[float(value) for value in terms] for terms in content.get("terms", [])]
        return cls(**known)

    def end(self, split: str) -> float:
        """The loss of the last mark; infinite for a twin that was stopped early or raised."""
        losses = self.losses.get(split) or []
        if self.raised or self.stopped is not None or not losses or not math.isfinite(losses[-1]):
            return math.inf
        return losses[-1]


@dataclass(frozen=True)
class Drawn:
    """What the training loader gave: how many batches, how many of them differ, and the same of examples."""

    batches: int
    different_batches: int
    examples: int = 0  # 0 if the batches cannot be taken apart
    different_examples: int = 0
    dataset: int | None = None  # its number of examples, if the loader has a dataset that says so
