"""One run for the questions: clean series, declared intent, and missing signals with the way to record them."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from steadyrun.errors import UsageError
from steadyrun.records import Event, Series
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.nonfinite import applied, lasting, unskipped
from steadyrun.signals.ranks import Ranks
from steadyrun.signals.script_advice import RECORDED_BY
from steadyrun.store.series_catalogue import entry_for

_IN_STEPS = {"warmup_steps", "total_steps", "val_every", "schedule"}
_EXACT = 2.0**53  # larger whole numbers are rounded
_GAP = 20.0  # times the usual spacing: a wider one is a gap
_SQUARABLE = 1e150  # squares of larger numbers overflow

Axes = tuple[npt.NDArray[np.int64], Floats]
"""Steps and times."""


class RunSource(Protocol):
    """What signals need from a run; `steadyrun.open_run` returns such an object."""

    @property
    def manifest(self) -> dict[str, Any]: ...
    @property
    def state(self) -> str: ...
    def names(self) -> list[str]: ...
    def series(self, name: str) -> Series: ...
    def events(self, kind: str | None = None) -> list[Event]: ...


class LimitTable(Protocol):
    """The limits of the asking question by name: a signal has none of its own."""

    def __getitem__(self, name: str) -> float: ...


@dataclass(frozen=True)
class Points:
    """A series with finite values only, at rising steps."""

    name: str
    steps: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    def where(self, keep: Any) -> Points:
        return Points(self.name, self.steps[keep], self.values[keep])

    def from_step(self, step: float) -> Points:
        return self.where(self.steps >= step)

    def step_at(self, index: int) -> int:
        return int(self.steps[index])

    def mean_until(self, step: float, window: int) -> float:
        """The mean of the last `window` points up to a step; NaN before the first."""
        end = int(np.searchsorted(self.steps, step, side="right"))
        return float(np.mean(self.values[max(0, end - window) : end])) if end else float("nan")

    @cached_property
    def spacing(self) -> float:
        """Steps between two points: 1 if every step was recorded."""
        return float(np.median(np.diff(self.steps))) if len(self) > 1 else 1.0

    def longest_stretch(self) -> Points:
        """The longest part without a gap, if the series omits more steps than it has; otherwise all of it."""
        apart = np.diff(self.steps)
        wide = np.flatnonzero(apart > _GAP * self.spacing)
        if not len(wide) or float(np.sum(apart[wide])) <= float(np.sum(apart)) / 2:
            return self
        edges = np.concatenate([[0], wide + 1, [len(self)]])
        longest = int(np.argmax(np.diff(edges)))
        return self.where(slice(int(edges[longest]), int(edges[longest + 1])))


class Signals:
    """The series, events and declarations of one run, read on demand."""

    def __init__(self, source: RunSource) -> None:
        self._source = source
        self._points: dict[str, Points] = {}
        self.memo: dict[Any, Any] = {}  # results that several questions share
        self._read: dict[str, Series] = {}  # read to find the end, not yet requested
        self._whole: dict[str, Axes] = {}  # series that `points` holds completely, so that they are not read again
        self._axes: list[Axes] = []
        self._steps: list[Floats] = []  # most series have the same steps: sharing them halves the memory
        self.manifest = source.manifest
        self.config: Mapping[str, Any] = _mapping(self.manifest.get("config"))
        if self.step_unit != "step":  # declarations in steps do not apply to epochs
            self.config = {name: value for name, value in self.config.items() if name not in _IN_STEPS}
        self.inferred: Mapping[str, Any] = _mapping(self.manifest.get("inferred"))

    @cached_property
    def names(self) -> list[str]:
        return self._source.names()

    @cached_property
    def ranks(self) -> Ranks | None:
        """The ranks of a run of several processes, joined; None for one process."""
        by_rank = getattr(self._source, "by_rank", None)
        if by_rank is None or not (len(by_rank.present) > 1 or any(_world(event) for event in self.events("process"))):
            return None
        return Ranks(by_rank)

    @property
    def _validated(self) -> npt.NDArray[np.int64]:
        """Steps with a validation: in such a row of a table the training loss is NaN."""
        if not self.has("val_loss"):
            return np.array([], np.int64)
        val = self.raw("val_loss")
        return val.steps[np.isfinite(val.values)]

    @cached_property
    def imported(self) -> bool:
        """Whether the record was made from a log, which has no information about the model."""
        return bool(self.about("imported"))

    @cached_property
    def of_script(self) -> bool:
        """Whether `steadyrun run` recorded a script that nobody edited."""
        return self.manifest.get("recorded_by") == RECORDED_BY

    @cached_property
    def step_unit(self) -> str:
        """The unit of the steps: "epoch" or "point" in a log without steps, otherwise "step"."""
        return str(self.about("imported").get("step_unit", "step"))

    def counted(self, points: Points) -> str:
        """The word for the points of a series: steps if each was recorded, otherwise logged points or epochs."""
        if self.step_unit == "epoch":
            return "epochs"
        return "steps" if self.every_step(points) else "logged points"

    def every_step(self, points: Points | Series) -> bool:
        """Whether each point of a series is a single step, not one of several or their mean."""
        return self.step_unit == "step" and (len(points) < 2 or float(np.median(np.diff(points.steps))) <= 1)

    def stretch(self, points: Points, steps: float, fewest: int) -> int:
        """How many points of a series cover this many steps: as many if each was recorded, fewer in a sparse log.

        At least `fewest`, which the statistic needs; for a log that counts epochs exactly these.
        """
        if self.step_unit != "step":
            return min(int(steps), fewest)
        return min(int(steps), max(fewest, math.ceil(steps / max(1.0, points.spacing))))

    def length(self, points: Points) -> float:
        """How many steps a series covers; its points in a log that does not count steps."""
        if self.step_unit != "step" or not len(points):
            return len(points)
        return float(points.steps[-1] - points.steps[0]) + points.spacing

    @cached_property
    def running(self) -> bool:
        """Whether more data may come."""
        return self._source.state in {"running", "unknown"}

    @cached_property
    def unfinished(self) -> bool:
        """Whether the run did not finish: it is running, stopped, crashed or was killed."""
        return self._source.state != "finished"

    @property
    def excerpt(self) -> str:
        """In words: the steps that are judged if the loss is an excerpt; empty if all are."""
        loss = self.maybe("loss")
        if loss is None or "excerpt" not in self.memo:
            return ""
        return f" (the log is an excerpt; steps {loss.steps[0]:.0f} to {loss.steps[-1]:.0f} are judged)"

    @property
    def whole_until(self) -> int | None:
        """The last step of a loss that was read and is finite at every step; None otherwise."""
        loss = self._points.get("loss")
        if loss is None or len(loss) < 2 or "loss" not in self._whole or loss.spacing != 1:
            return None
        return loss.step_at(len(loss) - 1)

    def has(self, name: str) -> bool:
        return name in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def own(self) -> list[str]:
        """The series that the user's program logged under its own names."""
        return [name for name in self.names if entry_for(name) is None]

    def lasting(self, name: str) -> npt.NDArray[np.int64]:
        """The non-finite steps of a series without a finite value before the next seam or the end."""
        return lasting(self.raw(name), self._seams)

    def matching(self, pattern: str) -> list[str]:
        return fnmatch.filter(self.names, pattern)

    def events(self, kind: str) -> list[Event]:
        return self._source.events(kind)

    def listed(self, key: str) -> list[dict[str, Any]]:
        """The entries of a list in the manifest, such as `param_groups`."""
        entries = self.manifest.get(key)
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []

    def about(self, key: str) -> Mapping[str, Any]:
        """A part of the manifest, such as `model`; empty if there is none."""
        return _mapping(self.manifest.get(key))

    def declared(self, name: str) -> float | None:
        """A number from the config; None if it is not declared as a number."""
        return number(self.config.get(name))

    def raw(self, name: str) -> Series:
        """A series as recorded, with non-finite values, in order of steps; of two at one step the later."""
        if not self.has(name):
            raise MissingSignal(name)
        if name in self._whole:
            steps, times = self._whole[name]
            return Series(name, steps, self._points[name].values, times)
        return self._read.pop(name, None) or _ordered(self._source.series(name))

    def points(self, name: str) -> Points:
        """The finite points of a series before the run's first non-finite value; `MissingSignal` if there are none.

        If the loss is an excerpt, those of its longest part without a gap.
        """
        if name not in self._points:
            self._points[name] = self._finite(name)
        if not len(self._points[name]):
            raise MissingSignal(name, f"{name} has no finite value{self._so_far}")
        return self._points[name]

    def distinct(self, name: str) -> Floats:
        """The values of a series with many values per step, such as the hashes of examples."""
        if not self.has(name):
            raise MissingSignal(name)
        values = self._source.series(name).values
        return values[np.isfinite(values) & (np.abs(values) < _EXACT)]

    def sampled_at(self, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Steps and values of such a series, the values as integers."""
        series = self._source.series(name)
        kept = np.isfinite(series.values) & (np.abs(series.values) < _EXACT)
        return series.steps[kept], series.values[kept].astype(np.int64)

    def how_many(self, name: str, until: float) -> int:
        """How many values such a series has up to a step."""
        return int(np.sum(self._source.series(name).steps <= until)) if self.has(name) else 0

    def family(self, pattern: str) -> dict[str, Points]:
        """All series of a pattern such as `activation/*`, by what the star matches; `MissingSignal` if none."""
        start = len(pattern) - 1
        series = {name[start:]: self.maybe(name) for name in self.matching(pattern)}
        kept = {name: points for name, points in series.items() if points is not None}
        if not kept:
            why = f"{pattern} has no finite value{self._so_far}" if series else ""
            raise MissingSignal(pattern, why)
        return kept

    def maybe(self, name: str) -> Points | None:
        """The points of a series; None if there are none."""
        try:
            return self.points(name)
        except MissingSignal:
            return None

    @cached_property
    def applied(self) -> npt.NDArray[np.int64]:
        """Steps with a non-finite gradient that was applied, judged by the losses that follow."""
        norms = self.raw("grad_norm")
        return applied(norms, self.raw("loss") if self.has("loss") else None, self.every_step(norms))

    @cached_property
    def first_nonfinite(self) -> tuple[int, str] | None:
        """The first step with a non-finite loss or gradient, and which; steps that the scaler skipped do not count."""
        steps = [(step, name) for name in ("loss", "grad_norm") if (step := self._first_bad(name)) is not None]
        return min(steps, default=None)

    @cached_property
    def end(self) -> float:
        """The end of the record for configuration questions: the first non-finite step."""
        return self.first_nonfinite[0] if self.first_nonfinite else float("inf")

    @property
    def _so_far(self) -> str:
        return f" before step {self.end:g}" if self.first_nonfinite else ""

    @property
    def _seams(self) -> list[int]:
        """Steps at which training continued from a checkpoint."""
        return [event.step for kind in ("resume", "rollback") for event in self.events(kind) if event.step is not None]

    def _finite(self, name: str) -> Points:
        series = self.raw(name)
        keep = np.isfinite(series.values) & (series.steps < self.end)
        steps, values = series.steps, series.values.astype(float, copy=False)
        whole = bool(np.all(keep))
        if not whole:
            steps, values = steps[keep], values[keep]
        if len(values) and float(np.max(np.abs(values))) > _SQUARABLE:
            values, whole = np.clip(values, -_SQUARABLE, _SQUARABLE), False
        points = Points(name, self._shared(steps), values)
        if name == "loss" and len(stretch := points.longest_stretch()) < len(points):
            points, whole, self.memo["excerpt"] = stretch, False, True
        if whole:
            self._whole[name] = self._axes_like(series)
        return points

    def _axes_like(self, series: Series) -> Axes:
        """Steps and times of a series, shared with another series if they are equal, as within a table."""
        for steps, times in self._axes:
            if (
                len(steps) == len(series)
                and np.array_equal(steps, series.steps)
                and np.array_equal(times, series.times)
            ):
                return steps, times
        self._axes.append((series.steps, series.times))
        return self._axes[-1]

    def _shared(self, steps: npt.NDArray[np.int64]) -> Floats:
        for known in self._steps:
            if len(known) == len(steps) and np.array_equal(known, steps):
                return known
        self._steps.append(steps.astype(float))
        return self._steps[-1]

    def not_finite(self, name: str) -> tuple[npt.NDArray[np.int64], int]:
        """The non-finite steps of a series, and its number of points."""
        key = ("not finite", name)
        if key not in self.memo:
            series = self._read[name] = self.raw(name)
            self.memo[key] = series.steps[~np.isfinite(series.values)], len(series)
        steps_and_length: tuple[npt.NDArray[np.int64], int] = self.memo[key]
        return steps_and_length

    def _first_bad(self, name: str) -> int | None:
        if not self.has(name):
            return None
        bad = self.not_finite(name)[0]
        if len(bad) and self.has("skipped"):
            bad = unskipped(bad, self.raw("skipped"))
        elif len(bad) and name == "grad_norm":
            bad = self.applied
        elif len(bad):  # if finite losses follow, the weights are intact or the value was not measured
            bad = np.setdiff1d(lasting(self.raw(name), self._seams), self._validated)
        return int(bad[0]) if len(bad) else None


def _ordered(series: Series) -> Series:
    steps = series.steps
    if len(steps) < 2 or np.all(steps[1:] > steps[:-1]):
        return series
    order = np.argsort(steps, kind="stable")
    last = np.append(np.diff(steps[order]) != 0, True)
    kept = order[last]
    return Series(series.name, steps[kept], series.values[kept], series.times[kept])


def _world(event: Event) -> bool:
    """Whether a process is one of several."""
    world = event.fields.get("world")
    return isinstance(world, int) and world > 1


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def signals_of(source: RunSource) -> Signals:
    """The signals of a run; `UsageError` if nothing was recorded."""
    signals = Signals(source)
    if not signals.names and not signals.manifest:
        raise UsageError(
            "the run directory has neither a manifest nor any series; choose a directory that steadyrun.record wrote"
        )
    return signals
