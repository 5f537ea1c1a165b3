"""Follow a run that is being written: for pages, forwarding and `check --follow`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from steadyrun.records import Dropped, Event
from steadyrun.store.columns import ColumnPoints, DataFile, SharedAxes, read_on
from steadyrun.store.events import parse_event
from steadyrun.store.layout import MANIFEST, events_file, metrics_folder, parse_segment
from steadyrun.store.reader import RunReader
from steadyrun.store.segment import STEP, TIME, Batch, SegmentReader
from steadyrun.store.trial_record import FILE as TRIAL

# Repeated reading of a run that is being written: each look reads only new data.


Fingerprint = Mapping[Path, tuple[int, int]]


def fingerprint(root: Path) -> Fingerprint:
    """The files of a run with their sizes and times, which change when a rank, a replay or a trial writes."""
    sizes = {}
    written = [path for folder in ("metrics", "events", "heartbeats") for path in (root / folder).rglob("*")]
    incidents = (root / "incidents").glob("step-*/*.json")  # a replay writes there after the run has ended
    for path in [*written, root / MANIFEST, root / TRIAL, *incidents]:
        try:
            status = path.stat()
        except OSError:  # does not exist yet, or was just compacted
            continue
        sizes[path] = (status.st_size, status.st_mtime_ns)
    return sizes


@dataclass
class _Part:
    """What was read of one column of one file, up to which position, and the damage."""

    points: ColumnPoints
    position: int
    size: int
    dropped: list[Dropped] = field(default_factory=list)


class TailView(RunReader):
    """Like `open_run`, for frequent polling. All reads between two looks see the same files and events."""

    def __init__(self, root: Path) -> None:
        self._parts: dict[tuple[Path, str], _Part] = {}
        self._sizes: Fingerprint = {}
        self._standing: tuple[Fingerprint, str] | None = None
        super().__init__(root)
        self._kept, self._axes = {}, SharedAxes()

    def look(self) -> bool:
        """Take a new look at the files; return whether anything changed."""
        standing = fingerprint(self.root), self.state
        if standing == self._standing:
            return False
        self._standing, self._sizes = standing, standing[0]
        self._kept, self._axes, self._dropped = {}, SharedAxes(), {}
        self._parts = {key: part for key, part in self._parts.items() if key[0] in self._sizes}
        return True

    def _read_points(self, file: DataFile, name: str, dropped: list[Dropped]) -> ColumnPoints:
        size = self._sizes.get(file.path, (-1, 0))[0]
        part = self._parts.get((file.path, name))
        if part is None or part.size != size:
            part = self._parts[file.path, name] = self._read_on(file, name, part, size)
        dropped += part.dropped
        return part.points

    def _read_on(self, file: DataFile, name: str, part: _Part | None, size: int) -> _Part:
        """Read new data; a file with damage or an incomplete last batch is read whole."""
        start = part.position if part is not None and not part.dropped else 0
        dropped: list[Dropped] = []
        points, position = read_on(file, name, dropped, start, self._axes)
        if part is not None and start:
            points = _joined(part.points, points)
        return _Part(self._sharing(file.path, points), position, size, dropped)

    def _sharing(self, path: Path, points: ColumnPoints) -> ColumnPoints:
        """The points; columns of a file with the same steps share arrays, which halves the memory."""
        for (other, _), part in self._parts.items():
            known = part.points
            if other == path and len(known.steps) == len(points.steps) and np.array_equal(known.steps, points.steps):
                return ColumnPoints(points.attempt, known.steps, points.values, known.times)
        return points


def _joined(old: ColumnPoints, new: ColumnPoints) -> ColumnPoints:
    if not len(new.steps):
        return old
    return ColumnPoints(
        old.attempt,
        np.concatenate([old.steps, new.steps]),
        np.concatenate([old.values, new.values]),
        np.concatenate([old.times, new.times]),
    )


# New rows and events of one attempt since the last look. Nothing is kept in memory.


TABLES = ("steps", "samples", "log")
_SLICE = 256  # rows to convert to Python numbers at a time
_PIECE = 2**20  # bytes of the event log read at a time


@dataclass(frozen=True)
class TableRow:
    """The existing values of one row of a table."""

    table: str
    step: int
    time: float
    values: dict[str, float]


class RowTail:
    """Follows the segments of one attempt. Read them before the run closes and compacts them."""

    def __init__(self, root: Path, attempt: int, wanted: Callable[[str], bool], every: int = 1) -> None:
        self._folder, self._attempt = metrics_folder(root, 0), attempt
        self._wanted, self._every = wanted, every
        self._positions: dict[
            str, tuple[int, int]
        ] = {}  # per segment: the position to continue from, and its size then

    def new(self) -> Iterator[TableRow]:
        for table in TABLES:
            for path in self._segments(table):
                size = path.stat().st_size
                start, size_then = self._positions.get(path.name, (0, -1))
                if size == size_then:
                    continue
                reader = SegmentReader(path)
                names = [name for name in reader.names if name in {STEP, TIME} or self._wanted(name)]
                for batch in reader.batches(names, start):
                    yield from self._rows(table, batch)
                self._positions[path.name] = max(start, reader.position), size

    def _segments(self, table: str) -> list[Path]:
        parsed = [(parse_segment(path.name), path) for path in self._folder.iterdir()]
        mine = [(key, path) for key, path in parsed if key is not None and key[:2] == (table, self._attempt)]
        return [path for _, path in sorted(mine)]

    def _rows(self, table: str, batch: Batch) -> Iterator[TableRow]:
        columns = {name: column for name, column in batch.columns.items() if column is not None}
        if STEP not in columns or TIME not in columns:
            return
        every = self._every if table == "steps" else 1
        for start in range(0, batch.rows, _SLICE):
            for step, at, values in _as_python(columns, start):
                if step % every == 0 and values:
                    yield TableRow(table, step, at, values)


def _as_python(columns: dict[str, pa.Array], start: int) -> Iterator[tuple[int, float, dict[str, float]]]:
    lists = {name: column.slice(start, _SLICE).to_pylist() for name, column in columns.items()}
    steps, times = lists.pop(STEP), lists.pop(TIME)
    for index, (step, at) in enumerate(zip(steps, times, strict=True)):
        values = {name: value for name, numbers in lists.items() if (value := numbers[index]) is not None}
        yield step, at, values


class EventTail:
    """Follows the event log of the first rank, from its end at creation."""

    def __init__(self, root: Path) -> None:
        self._path = events_file(root, 0)
        self._position = self._path.stat().st_size if self._path.exists() else 0
        self._torn = b""  # the start of an incomplete line

    def new(self) -> Iterator[Event]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            while piece := file.read(_PIECE):
                self._position = file.tell()
                *lines, self._torn = (self._torn + piece).split(b"\n")
                yield from (event for line in lines if (event := parse_event(line, 0)) is not None)
