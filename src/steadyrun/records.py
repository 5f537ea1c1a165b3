"""The frozen dataclasses that rooms hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Series:
    """One recorded quantity: where a value is missing there is no point; NaN is a measured value."""

    name: str
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Event:
    """One line of the event log."""

    kind: str
    step: int | None
    time: float
    rank: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """Something in a run directory that could not be read, and why."""

    file: str
    reason: str
    size: int
    unit: str = "bytes"

    def __str__(self) -> str:
        return f"{self.file}: {self.size} {self.unit} not read, {self.reason}"


@dataclass(frozen=True)
class Found:
    """A fault that the live monitor tells of.

    `step` is the step it is about, `noticed` the one at which it was seen. Where `certain` is False, more training
    may undo it: `check` will call it a fault only if it still stands at the end.
    """

    code: str
    outcome: str
    step: int | None
    message: str
    fix: str
    noticed: int
    certain: bool = True
