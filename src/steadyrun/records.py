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
    """One recorded quantity over steps, as numpy arrays.

    A missing value has no point; NaN is a measured value. `times` are seconds since 1970.
    """

    name: str
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Event:
    """One line of the event log; `fields` holds what depends on its `kind`."""

    kind: str
    step: int | None
    time: float
    rank: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Dropped:
    """Part of a run directory that could not be read, and the reason."""

    file: str
    reason: str
    size: int
    unit: str = "bytes"

    def __str__(self) -> str:
        return f"{self.file}: {self.size} {self.unit} not read, {self.reason}"


@dataclass(frozen=True)
class Found:
    """Finding of the live monitor: a fault, or with `grade` "suspect" a suspect.

    `step` is the step it is about, `noticed` the step at which it was found. If `certain` is False, more training may
    undo it: `check` calls it a fault only if it still holds at the end.
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
    """Trackers for `steadyrun.record(forward=…)`, and how much they get.

    `to` names trackers ("tensorboard", "wandb", "mlflow"; "tensorboard:folder", "wandb:project",
    "mlflow:experiment"), or holds objects of your own with `scalars(step, values)` and `finding(event)`. `every` is in
    steps: 10 sends every tenth. Series that match a pattern in `leave_out` are never sent. When the run closes, a
    tracker gets `wait` seconds for the rest.
    """

    to: str | object | Sequence[str | object]
    every: int = 1
    leave_out: tuple[str, ...] = ("batch_hash", "label_hash", "example_hash/*", "*_digest*", "histogram/*")
    wait: float = 10.0


@dataclass(frozen=True)
class Alerts:
    """Recipients for `steadyrun.record(alert=…)`, and how often they get a message.

    `to` holds apprise addresses ("slack://…", "mailto://…", "json://…"), or functions that take the text. `every` is in
    seconds: the first message is sent at once, the next after that time, with everything found in between. `warnings`
    includes findings that more training may undo, `on="suspect"` includes suspects. When the run closes, a service
    gets `wait` seconds for the rest.
    """

    to: str | Callable[[str], object] | Sequence[str | Callable[[str], object]] = field(repr=False)
    every: float = 300.0
    warnings: bool = False
    wait: float = 10.0
    on: str = "fault"
