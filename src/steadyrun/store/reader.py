"""Read a run directory: of a finished, killed, damaged or running run."""

from __future__ import annotations

import bisect
import difflib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from steadyrun.errors import NewerSchemaError, RunDirectoryError, UsageError
from steadyrun.records import Dropped, Event, Series
from steadyrun.store import run_summary
from steadyrun.store.columns import ColumnPoints, DataFile, SharedAxes, data_files, despite_compaction, read_points
from steadyrun.store.events import read_events
from steadyrun.store.jsonio import number
from steadyrun.store.layout import MANIFEST, events_file, last_attempt, metrics_folder, ranks, read_manifest
from steadyrun.store.ranks import RankFiles

_FIRST_TABLE = "steps"
_NO_STEP = 2**63  # above every step
_Item = TypeVar("_Item")
_Number = TypeVar("_Number", np.int64, np.float64)


def open_run(path: str | os.PathLike[str]) -> RunReader:
    """Open a run directory for reading; a `RunDirectoryError` if it is not one."""
    return RunReader(run_folder(path))


def run_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a run, if there is one at the path."""
    root = Path(path).expanduser()
    if not root.is_dir():
        raise RunDirectoryError(f"{root} is not a folder. Give the folder that steadyrun.record wrote.")
    return root


class RunReader:
    """A run directory. Every call reads the current files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._dropped: dict[Dropped, None] = {}
        self._kept: dict[tuple[str, int], Any] | None = None
        self._axes: SharedAxes | None = None
        self.flight_recorder: Path | None = None  # a folder with traces of collectives, if not the run's own
        self.manifest  # noqa: B018  refuses a folder that is not a run directory

    @property
    def manifest(self) -> dict[str, Any]:
        """The current manifest; empty if it is lost but the run's data exists."""
        try:
            return read_manifest(self.root)
        except NewerSchemaError:
            raise
        except RunDirectoryError as problem:
            if not ranks(self.root):
                raise
            self._dropped[Dropped(MANIFEST, str(problem), 1, "file")] = None
            return {}

    @property
    def ranks(self) -> list[int]:
        """The ranks that wrote to this run."""
        return ranks(self.root)

    @property
    def by_rank(self) -> RankFiles:
        """The files of each rank, for those who join them."""
        return RankFiles(self.root, self._dropped, self.flight_recorder)

    @property
    def state(self) -> str:
        """`running`, `finished`, `stopped`, `crashed`; or `killed` if it was running and its process is gone."""
        manifest = self.manifest
        state = str(manifest.get("state", "unknown"))
        return "killed" if state == "running" and process_is_gone(manifest.get("process", {})) else state

    @property
    def dropped(self) -> list[Dropped]:
        """Unreadable data of the reads so far, with reasons. `verify()` reads everything."""
        return list(self._dropped)

    def as_of_now(self) -> Self:
        """A view for reading many series at once: files and events are listed only once."""
        view = type(self)(self.root)
        view._kept = {}
        view._axes = SharedAxes()
        view.flight_recorder = self.flight_recorder
        return view

    def last_step(self, rank: int = 0) -> int | None:
        """The last recorded step; if `run.step` was never called, the last step with a logged value."""
        parts = self._read(lambda: [(file.table, self._read_points(file, "step", [])) for file in self._files(rank)])
        ends = [(table, int(part.steps.max())) for table, part in parts if len(part.steps)]
        of_steps = [end for table, end in ends if table == _FIRST_TABLE]
        return max(of_steps or [end for _, end in ends], default=None)

    def names(self, rank: int = 0) -> list[str]:
        """The names of all recorded series."""
        names = {name: None for file in self._files(rank) for name in file.names if name not in {"step", "time"}}
        names.update(dict.fromkeys(_validation_series(self.events("validation", rank))))
        return sorted(names)

    def series(self, name: str, rank: int = 0, *, every_attempt: bool = False) -> Series:
        """One series as numpy arrays, without loading the others.

        After a resume the newer attempt replaces the steps it repeats; `every_attempt=True` keeps both.
        """
        points = self._read(lambda: self._points(name, rank))
        if points and not every_attempt:
            points = self._current(points, rank)
        if not points:
            points = _validation_series(self.events("validation", rank, every_attempt=every_attempt)).get(name, [])
        if not points:
            raise self._unknown(name, rank)
        steps = _joined([part.steps for part in points])
        values = _joined([part.values for part in points])
        times = _joined([part.times for part in points])
        if not every_attempt and np.any(steps[1:] < steps[:-1]):
            order = np.argsort(steps, kind="stable")
            steps, values, times = steps[order], values[order], times[order]
        return Series(name, steps, values, times)

    def events(self, kind: str | None = None, rank: int = 0, *, every_attempt: bool = False) -> list[Event]:
        """The events of one rank, oldest first; only of one kind if given."""
        events = self._once("events", rank, lambda: self._read_events(rank))
        if not every_attempt:
            events = _without_repeated_steps(events)
        return [event for event in events if kind in (None, event.kind)]

    def verify(self) -> list[Dropped]:
        """Read every column of every rank and return all damage."""
        for rank in self.ranks:
            self.events(rank=rank)
            for name in self.names(rank):
                self.series(name, rank)
        return self.dropped

    def __str__(self) -> str:
        return run_summary.describe(self)

    def __repr__(self) -> str:
        return f"<steadyrun run {str(self.root)!r}, {self.state}>"

    def _once(self, what: str, rank: int, read: Callable[[], list[_Item]]) -> list[_Item]:
        """The result of `read`; in a fixed view, its first result."""
        if self._kept is None:
            return read()
        if (what, rank) not in self._kept:
            self._kept[what, rank] = read()
        items: list[_Item] = self._kept[what, rank]
        return items

    def _read(self, read: Callable[[], _Item]) -> _Item:
        """Read again from the current files if files vanish meanwhile."""
        return despite_compaction(read, self._forget_files)

    def _forget_files(self) -> None:
        self._kept = (
            None if self._kept is None else {key: kept for key, kept in self._kept.items() if key[0] != "files"}
        )

    def _read_events(self, rank: int) -> list[Event]:
        path = events_file(self.root, rank)
        events, dropped = read_events(path, rank)
        if (
            not events and not dropped and path.exists() and self._files(rank)
        ):  # it would contain at least their attempt
            dropped = [Dropped(path.name, "it is empty: its events are lost", 1, "file")]
        self._dropped.update(dict.fromkeys(dropped))
        return events

    def _files(self, rank: int) -> list[DataFile]:
        return self._once("files", rank, lambda: self._list_files(rank))

    def _list_files(self, rank: int) -> list[DataFile]:
        dropped: list[Dropped] = []
        files = despite_compaction(lambda: data_files(metrics_folder(self.root, rank), dropped))
        self._dropped.update(dict.fromkeys(dropped))
        return files

    def _points(self, name: str, rank: int) -> list[ColumnPoints]:
        files = [file for file in self._files(rank) if name in file.names]
        tables = sorted({file.table for file in files}, key=lambda table: (table != _FIRST_TABLE, table))
        dropped: list[Dropped] = []
        for table in tables:
            points = [self._read_points(file, name, dropped) for file in files if file.table == table]
            self._dropped.update(dict.fromkeys(dropped))
            if any(len(part.steps) for part in points) or table == tables[-1]:
                return points
        return []

    def _read_points(self, file: DataFile, name: str, dropped: list[Dropped]) -> ColumnPoints:
        return read_points(file, name, dropped, self._axes)

    def _current(self, points: list[ColumnPoints], rank: int) -> list[ColumnPoints]:
        seams = self._once("seams", rank, lambda: self._seams(rank))
        kept = []
        for part in points:
            later = bisect.bisect_right(seams, (part.attempt, _NO_STEP))
            keep = part.steps < seams[later][1] if later < len(seams) else slice(None)
            kept.append(ColumnPoints(part.attempt, part.steps[keep], part.values[keep], part.times[keep]))
        return kept

    def _seams(self, rank: int) -> list[tuple[int, int]]:
        """For every attempt, in order, the first step that it or a later attempt recorded."""
        newest, first = last_attempt(self.root, rank), _NO_STEP
        seams = []
        for attempt, step in sorted(_attempt_starts(self.events(rank=rank, every_attempt=True)).items(), reverse=True):
            if attempt <= newest:
                first = min(first, step)
                seams.append((attempt, first))
        return seams[::-1]

    def _unknown(self, name: str, rank: int) -> UsageError:
        names = self.names(rank)
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else f"it has {len(names)}: {', '.join(names[:12])} …"
        return UsageError(f"{self.root} has no series {name!r}; {hint}")


def _joined(parts: list[npt.NDArray[_Number]]) -> npt.NDArray[_Number]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _attempt_starts(events: list[Event]) -> dict[int, int]:
    """The first step that each attempt recorded."""
    starts = [event for event in events if event.kind in {"start", "resume"} and event.step is not None]
    return {event.fields.get("attempt", 1): event.step for event in starts if event.step is not None}


def _without_repeated_steps(events: list[Event]) -> list[Event]:
    """Drop the values of an earlier attempt for steps that a later attempt repeated."""
    kept: list[Event] = []
    seam = _NO_STEP
    for event in reversed(events):
        if event.kind == "resume" and event.step is not None:
            seam = min(seam, event.step)
        if event.kind != "validation" or event.step is None or event.step < seam:
            kept.append(event)
    return kept[::-1]


def _validation_series(events: list[Event]) -> dict[str, list[ColumnPoints]]:
    """Validation events as series: val_loss, val_class_loss/<class> and all other given numbers."""
    rows_by_name: dict[str, list[tuple[int, float, float]]] = {}
    for event in events:
        for name, value in event.fields.get("values", {}).items():
            if event.step is not None:
                rows_by_name.setdefault(name, []).append((event.step, number(value), event.time))
    return {name: [_as_points(rows)] for name, rows in rows_by_name.items()}


def _as_points(rows: list[tuple[int, float, float]]) -> ColumnPoints:
    steps, values, times = zip(*rows, strict=True)
    return ColumnPoints(0, np.array(steps, np.int64), np.array(values, float), np.array(times, float))


def process_is_gone(process: Any) -> bool:
    """Whether a manifest's process is known to be gone: it ran on this host and no longer exists."""
    if not isinstance(process, dict) or process.get("host") != platform.node():
        return False
    if not isinstance(process.get("pid"), int) or not 0 < process["pid"] < 2**31:
        return False
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_zombie(process["pid"])


def _is_zombie(pid: int) -> bool:
    """Whether a process is a zombie, if the system reports it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] in (["Z"], ["X"])
