"""The files of each rank of a run: ranges of ranks, and one rank's events and columns, read once and bounded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from steadyrun.records import Dropped, Event
from steadyrun.store import compaction
from steadyrun.store.columns import DataFile, data_files, despite_compaction, opened_file, whole_array
from steadyrun.store.events import read_events
from steadyrun.store.flight_recorder import FOLDER, Trace, read_traces
from steadyrun.store.heartbeats import Heartbeat, read_heartbeats
from steadyrun.store.layout import events_file, metrics_folder, newest_attempt, parse_parquet, parse_segment, ranks
from steadyrun.store.segment import STEP, SegmentReader, is_present, to_numpy

MOST_RANKS = 65_536  # a range or a world of more is damaged
_UNREADABLE = (pa.ArrowException, OSError, ValueError)

Column = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Steps and values."""


def rank_range(given: Sequence[int]) -> list[int] | dict[str, int]:
    """Ranks as the record keeps them: first, count and stride if they are regular, otherwise the list."""
    numbers = [int(rank) for rank in given]
    strides = {later - earlier for earlier, later in itertools.pairwise(numbers)}
    if len(numbers) < 3 or len(strides) != 1:
        return numbers
    return {"first": numbers[0], "count": len(numbers), "stride": strides.pop()}


def rank_list(given: Any) -> list[int]:
    """The ranks of such a record; empty if it is damaged."""
    if isinstance(given, Mapping):
        first, count, stride = (_whole(given.get(name)) for name in ("first", "count", "stride"))
        if not 0 <= first < MOST_RANKS or not 0 <= count <= MOST_RANKS or not 0 < stride <= MOST_RANKS:
            return []
        return list(range(first, first + count * stride, stride))
    if not isinstance(given, list | tuple) or len(given) > MOST_RANKS:
        return []
    return [rank for rank in map(_whole, given) if 0 <= rank < MOST_RANKS]


def _whole(number: Any) -> int:
    """A whole number as it is; -1 for anything else."""
    return number if isinstance(number, int) and not isinstance(number, bool) else -1


@dataclass(frozen=True)
class RankEvents:
    """The events of one rank, and what they show of its attempts."""

    events: tuple[Event, ...]
    seams: Mapping[int, int] = field(default_factory=dict)  # by attempt: its first step
    closed: bool = False  # whether the newest attempt was closed: its segments are compacted


class RankFiles:
    """Reads the files of any rank of a run. Nothing is kept: a caller keeps what it needs."""

    def __init__(self, root: Path, dropped: dict[Dropped, None], flight_recorder: Path | None = None) -> None:
        self._root, self._dropped = root, dropped
        self.flight_recorder = flight_recorder  # a folder with traces elsewhere

    @property
    def present(self) -> list[int]:
        """The ranks that have files."""
        return [rank for rank in ranks(self._root) if rank < MOST_RANKS]

    def heartbeats(self) -> dict[int, Heartbeat]:
        """The last heartbeat of each rank."""
        beats, dropped = read_heartbeats(self._root)
        self._dropped.update(dict.fromkeys(dropped))
        return {rank: beat for rank, beat in beats.items() if rank < MOST_RANKS}

    def traces(self) -> dict[int, Trace]:
        """The Flight Recorder's traces: of the chosen folder, else of the run's own."""
        traces, dropped = read_traces(self.flight_recorder or self._root / FOLDER)
        self._dropped.update(dict.fromkeys(dropped))
        return {rank: trace for rank, trace in traces.items() if rank < MOST_RANKS}

    def events(self, rank: int) -> RankEvents:
        events, dropped = read_events(events_file(self._root, rank), rank)
        self._dropped.update(dict.fromkeys(dropped))
        folder = metrics_folder(self._root, rank)
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        newest = newest_attempt(names)
        written = [parse_segment(name) or parse_parquet(name) for name in names]
        latest = [len(parsed) for parsed in written if parsed and parsed[1] == newest]
        closed = bool(latest) and max(latest) == len(("table", "attempt"))  # no segments
        return RankEvents(tuple(events), _seams(events, newest), closed)

    def columns(
        self,
        rank: int,
        tables: Sequence[str],
        wanted: Callable[[str], bool],
        *,
        seams: Mapping[int, int] | None = None,
        most_rows: int = 1_000_000_000,
        several: bool = False,
    ) -> dict[str, Column]:
        """The wanted columns of some tables, each file opened once.

        Steps that a later attempt repeated are left out. Of a table with more than `most_rows` rows only some row
        groups are read: the first, the last and some between. `several` keeps all values of a step, otherwise the last.
        """
        parts = despite_compaction(lambda: self._parts(rank, tables, wanted, seams or {}, most_rows))
        return {name: _joined(pieces) if several else _by_step(_joined(pieces)) for name, pieces in parts.items()}

    def _parts(
        self, rank: int, tables: Sequence[str], wanted: Callable[[str], bool], seams: Mapping[int, int], most_rows: int
    ) -> dict[str, list[Column]]:
        parts: dict[str, list[Column]] = {}
        dropped: list[Dropped] = []
        for file in data_files(metrics_folder(self._root, rank), dropped, tables):
            names = [name for name in file.names if wanted(name)]
            before = min((step for attempt, step in seams.items() if attempt > file.attempt), default=None)
            for name, (steps, values) in _read(file, names, most_rows, dropped) if names else ():
                keep = slice(None) if before is None else steps < before
                parts.setdefault(name, []).append((steps[keep], values[keep]))
        self._dropped.update(dict.fromkeys(dropped))
        return parts


def _seams(events: Sequence[Event], newest: int) -> dict[int, int]:
    starts = {
        int(event.fields.get("attempt", 1)): event.step
        for event in events
        if event.kind in {"start", "resume"} and event.step is not None
    }
    return {attempt: step for attempt, step in starts.items() if attempt <= newest}


def _joined(pieces: list[Column]) -> Column:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate([steps for steps, _ in pieces]), np.concatenate([values for _, values in pieces])


def _by_step(column: Column) -> Column:
    """At rising steps; of two values at one step the later counts."""
    steps, values = column
    if len(steps) < 2 or np.all(steps[1:] > steps[:-1]):
        return column
    order = np.argsort(steps, kind="stable")
    last = np.append(np.diff(steps[order]) != 0, True)
    return steps[order[last]], values[order[last]]


def _read(file: DataFile, names: Sequence[str], most_rows: int, dropped: list[Dropped]) -> Iterator[tuple[str, Column]]:
    """Each column with its existing values; damaged parts are left out and reported."""
    rows = _segment_rows if file.path.suffix == ".arrow" else _parquet_rows
    for step, columns in rows(file, names, most_rows, dropped):
        steps = to_numpy(step).astype(np.int64, copy=False)
        for name, column in columns.items():
            if column is None:
                continue
            there = slice(None) if column.null_count == 0 else is_present(column)
            yield name, (steps[there], to_numpy(column)[there])


_Rows = Iterator[tuple[pa.Array, Mapping[str, pa.Array | None]]]


def _segment_rows(file: DataFile, names: Sequence[str], _most_rows: int, dropped: list[Dropped]) -> _Rows:
    reader = SegmentReader(file.path)
    for batch in reader.batches([STEP, *names]):
        if (step := batch.columns[STEP]) is not None:
            yield step, {name: batch.columns.get(name) for name in names}
    dropped += reader.dropped


def _parquet_rows(file: DataFile, names: Sequence[str], most_rows: int, dropped: list[Dropped]) -> _Rows:
    with pq.ParquetFile(opened_file(file.path), page_checksum_verification=True) as opened:
        for group in _chosen(opened.metadata, file.groups, most_rows):
            try:
                for name in (STEP, *names) if file.sums else ():
                    compaction.check_column(file.path, file.sums, opened.metadata, group, file.indices[name])
                table = opened.read_row_group(group, columns=[STEP, *names], use_threads=False)
                values = {name: whole_array(table[name]) for name in names}
                step = whole_array(table[STEP], pa.int64())
                if step.null_count:
                    raise ValueError("a row lacks its step")
            except FileNotFoundError:
                raise
            except _UNREADABLE as problem:
                rows = opened.metadata.row_group(group).num_rows
                dropped.append(Dropped(file.path.name, f"it is damaged ({problem})", rows, "rows"))
                continue
            yield step, values


def _chosen(metadata: pq.FileMetaData, groups: int, most_rows: int) -> list[int]:
    """All row groups, or as many as fit: the first, the last and some between."""
    if not groups or metadata.num_rows <= most_rows:
        return list(range(groups))
    fitting = max(2, int(most_rows * groups / metadata.num_rows))
    return sorted({int(index) for index in np.linspace(0, groups - 1, min(fitting, groups)).round()})
