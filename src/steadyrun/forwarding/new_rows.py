"""What is new in a run's files since the last look: rows and events of one attempt. Nothing that was read is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from steadyrun.records import Event
from steadyrun.store.events import parse_event
from steadyrun.store.layout import events_file, metrics_folder, parse_segment
from steadyrun.store.segment import STEP, TIME, Batch, SegmentReader

TABLES = ("steps", "samples", "log")
_SLICE = 256  # rows that are Python numbers at a time
_PIECE = 2**20  # bytes of the event log read at a time


@dataclass(frozen=True)
class TableRow:
    """The present values of one row of a table."""

    table: str
    step: int
    time: float
    values: dict[str, float]


class RowTail:
    """Follows the segments of one attempt. They are compacted away when the run closes; read them before."""

    def __init__(self, root: Path, attempt: int, wanted: Callable[[str], bool], every: int = 1) -> None:
        self._folder, self._attempt = metrics_folder(root, 0), attempt
        self._wanted, self._every = wanted, every
        self._positions: dict[str, tuple[int, int]] = {}  # of a segment: where to read on, and its size then

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
    """Follows the event log of the first rank, from where it ended when this was made."""

    def __init__(self, root: Path) -> None:
        self._path = events_file(root, 0)
        self._position = self._path.stat().st_size if self._path.exists() else 0
        self._torn = b""  # the beginning of a line that is being written

    def new(self) -> Iterator[Event]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            while piece := file.read(_PIECE):
                self._position = file.tell()
                *lines, self._torn = (self._torn + piece).split(b"\n")
                yield from (event for line in lines if (event := parse_event(line, 0)) is not None)
