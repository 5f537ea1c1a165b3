"""The frozen dataclasses that rooms hand to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    grade: str = "fault"  # or "suspect"


@dataclass(frozen=True)
class Forward:
    """Where `steadyrun.record(forward=…)` sends what is recorded, and how much of it.

    `to` names trackers ("tensorboard", "wandb", "mlflow"; "tensorboard:folder", "wandb:project",
    "mlflow:experiment"), or holds objects of your own with `scalars(step, values)` and `finding(event)`. Of the steps,
    each `every`-th is sent; series that match a pattern in `leave_out` never are. When the run closes, a tracker
    gets `wait` seconds for what is left.
    """

    to: str | object | Sequence[str | object]
    every: int = 1
    leave_out: tuple[str, ...] = ("batch_hash", "label_hash", "example_hash/*", "histogram/*")
    wait: float = 10.0


@dataclass(frozen=True)
class Alerts:
    """Whom `steadyrun.record(alert=…)` tells of faults, incidents and crashes, and how often.

    `to` holds addresses as apprise knows them ("slack://…", "mailto://…", "json://…"), or functions that take the
    text. The first message goes out at once, the next after `every` seconds, with all that was held back meanwhile.
    `warnings` sends what may pass as well, `on="suspect"` suspects as well. When the run closes, a service gets `wait`
    seconds for what is left.
    """

    to: str | Callable[[str], object] | Sequence[str | Callable[[str], object]] = field(repr=False)
    every: float = 300.0
    warnings: bool = False
    wait: float = 10.0
    on: str = "fault"
