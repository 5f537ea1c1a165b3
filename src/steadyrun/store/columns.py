"""Read one column of one table from the files of a rank: Parquet and segments, oldest first."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from steadyrun.records import Dropped
from steadyrun.store import compaction
from steadyrun.store.compaction import REPLACES
from steadyrun.store.jsonio import loads, regular_size
from steadyrun.store.layout import parse_parquet, parse_segment
from steadyrun.store.segment import STEP, TIME, Batch, SegmentReader, is_present, to_numpy

_Result = TypeVar("_Result")
_MOST_ROWS, _MOST_CELLS = 20_000_000, 1_000_000_000  # rows and cells to read of one table
_OPEN = 16  # files of a kind to keep open
_MOST_BATCHES = 50_000  # columns of batches to keep of one segment, about 10 MB
_UNREADABLE = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True)
class DataFile:
    """A file with rows of one table of one attempt."""

    path: Path
    table: str
    attempt: int
    part: int
    names: tuple[str, ...]
    groups: int = 0  # row groups to read of a Parquet file
    sums: bytes = b""  # checksums of its columns

    @cached_property
    def indices(self) -> dict[str, int]:
        """The index of each column; all columns hold numbers, so the names are in order."""
        return {name: index for index, name in enumerate(self.names)}


@dataclass(frozen=True)
class ColumnPoints:
    """The existing values of a column in one attempt, in the order of writing."""

    attempt: int
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64]


def data_files(folder: Path, dropped: list[Dropped], tables: Container[str] | None = None) -> list[DataFile]:
    """The files to read, in order, without segments that a Parquet file replaces; only of some tables if given."""
    files: list[DataFile] = []
    replaced: set[str] = set()
    room: dict[str, int] = {}
    for path in _regular(folder, "*.parquet", dropped):
        if (parsed := parse_parquet(path.name)) is None or (tables is not None and parsed[0] not in tables):
            continue
        try:
            files.append(_parquet_file(path, *parsed, room, replaced, dropped))
        except _UNREADABLE as problem:
            size = path.stat().st_size  # a file that has vanished is not damaged
            dropped.append(Dropped(path.name, f"it is not readable as Parquet ({problem})", size))
    for path in _regular(folder, "*.arrow", dropped):
        parsed_segment = parse_segment(path.name)
        if parsed_segment is None or path.name in replaced:
            continue
        if tables is not None and parsed_segment[0] not in tables:
            continue
        reader = SegmentReader(path)
        dropped += reader.dropped
        files.append(DataFile(path, *parsed_segment, tuple(reader.names)))
    return sorted(files, key=lambda file: (file.table, file.attempt, file.part))


def _regular(folder: Path, pattern: str, dropped: list[Dropped]) -> Iterator[Path]:
    """The regular files; a pipe, a device or a broken link is reported as damage."""
    for path in sorted(folder.glob(pattern)):
        try:
            regular_size(path)
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and not path.is_symlink():  # just compacted
                raise
            dropped.append(Dropped(path.name, f"it cannot be read ({problem.strerror or problem})", 1, "file"))
            continue
        yield path


def _parquet_file(
    path: Path, table: str, attempt: int, room: dict[str, int], replaced: set[str], dropped: list[Dropped]
) -> DataFile:
    """Read the footer. `room` limits the rows of each table, because a damaged footer can claim billions."""
    sums = compaction.check(path)
    with opened_file(path) as source:
        metadata = pq.read_metadata(source)
    schema = metadata.schema.to_arrow_schema()
    names = _numbers(schema, path, dropped)
    left = room.setdefault(table, min(_MOST_ROWS, _MOST_CELLS // len(schema)))
    groups, rows = _fitting([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)], left)
    room[table] = left - rows
    if rows < metadata.num_rows:
        dropped.append(
            Dropped(path.name, "it has more rows than steadyrun reads of one table", metadata.num_rows - rows, "rows")
        )
    replaced |= _replaces(path, schema, dropped)
    return DataFile(path, table, attempt, 0, names, groups, sums)


def _fitting(sizes: list[int], most: int) -> tuple[int, int]:
    """The number of leading row groups within a number of rows, and their rows."""
    groups = rows = 0
    for size in sizes:
        if rows + size > most:
            break
        groups, rows = groups + 1, rows + size
    return groups, rows


def _numbers(schema: pa.Schema, path: Path, dropped: list[Dropped]) -> tuple[str, ...]:
    """The columns of numbers, each name once; a table without steps or times was not written by steadyrun."""
    counts = Counter(schema.names)
    numeric = {
        field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    } - {name for name, count in counts.items() if count > 1}
    if STEP not in numeric or TIME not in numeric or not pa.types.is_integer(schema.field(STEP).type):
        raise ValueError(f"it lacks a column of numbers {STEP!r} or {TIME!r}")
    if other := [name for name in counts if name not in numeric]:
        named = ", ".join(repr(name[:60]) for name in other[:5])
        dropped.append(Dropped(path.name, f"not numbers, or a duplicate name: {named}", len(other), "columns"))
    return tuple(name for name in counts if name in numeric)


def _replaces(path: Path, schema: pa.Schema, dropped: list[Dropped]) -> set[str]:
    """The segments that a Parquet file replaces; if the list is damaged, all of its table and attempt."""
    try:
        named = loads((schema.metadata or {}).get(REPLACES, b"[]"))
        if isinstance(named, list) and all(isinstance(name, str) for name in named):
            return set(named)
    except ValueError:
        pass
    dropped.append(Dropped(path.name, "its list of replaced segments is damaged", 1, "list"))
    mine = parse_parquet(path.name)
    return {segment.name for segment in path.parent.glob("*.arrow") if (parse_segment(segment.name) or ())[:2] == mine}


class SharedAxes:
    """Caches for readers of many series: open files, and the steps and times that all series of a file share."""

    def __init__(self) -> None:
        self.groups: dict[tuple[Path, int], tuple[pa.Array, pa.Array]] = {}
        self._files: dict[Path, pq.ParquetFile] = {}
        self._segments: dict[Path, SegmentReader] = {}
        self._whole: dict[Path, list[Batch] | None] = {}

    def file(self, path: Path) -> pq.ParquetFile:
        return _kept(self._files, path, lambda: pq.ParquetFile(opened_file(path), page_checksum_verification=True))

    def segment(self, path: Path) -> SegmentReader:
        return _kept(self._segments, path, lambda: SegmentReader(path))

    def batches(self, reader: SegmentReader, names: list[str]) -> Iterable[Batch]:
        """Verified batches; those of a segment with few cells are taken apart once for all its series."""
        whole = _kept(self._whole, reader.path, lambda: _whole(reader))
        return reader.batches(names) if whole is None else whole


def _whole(reader: SegmentReader) -> list[Batch] | None:
    """All columns of a segment, as views of its map; None if they are too many, or damaged."""
    batches = list(islice(reader.batches(reader.names), _MOST_BATCHES // max(1, len(reader.names)) + 1))
    complete = len(batches) * len(reader.names) <= _MOST_BATCHES and not reader.dropped
    reader.dropped = []
    return batches if complete else None


def _kept(cache: dict[Path, _Result], path: Path, make: Callable[[], _Result]) -> _Result:
    if path not in cache:
        while len(cache) >= _OPEN:
            del cache[next(iter(cache))]
        cache[path] = make()
    return cache[path]


def read_points(file: DataFile, name: str, dropped: list[Dropped], axes: SharedAxes | None = None) -> ColumnPoints:
    """The points of column `name` in `file`; unverified data is skipped and reported.

    `axes` keeps steps and times from one call to the next, for readers of many series.
    """
    return read_on(file, name, dropped, 0, axes)[0]


def read_on(
    file: DataFile, name: str, dropped: list[Dropped], start: int, axes: SharedAxes | None = None
) -> tuple[ColumnPoints, int]:
    """The points from a position in the file, and the position to continue from; Parquet is read whole."""
    if file.path.suffix == ".parquet":
        return _points(file, _parquet_rows(file, name, dropped, axes)), start
    reader = (axes or SharedAxes()).segment(file.path)
    reader.dropped = []
    wanted = [STEP, TIME, name]
    batches = axes.batches(reader, wanted) if axes is not None and start == 0 else reader.batches(wanted, start)
    points = _points(file, _segment_rows(batches, name))
    dropped += reader.dropped
    return points, max(start, reader.position)


def _points(file: DataFile, rows: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> ColumnPoints:
    steps, times, values = [], [], []
    for step, at, value in rows:
        present = slice(None) if value.null_count == 0 else is_present(value)
        steps.append(to_numpy(step)[present])
        times.append(to_numpy(at)[present])
        values.append(to_numpy(value)[present])
    return ColumnPoints(
        file.attempt,
        np.concatenate([*steps, np.empty(0, np.int64)]).astype(np.int64, copy=False),
        np.concatenate([*values, np.empty(0)]),
        np.concatenate([*times, np.empty(0)]),
    )


def _segment_rows(batches: Iterable[Batch], name: str) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    for batch in batches:
        step, at, value = batch.columns[STEP], batch.columns[TIME], batch.columns[name]
        if step is not None and at is not None and value is not None:
            yield step, at, value


def _parquet_rows(
    file: DataFile, name: str, dropped: list[Dropped], axes: SharedAxes | None
) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    opened = (axes or SharedAxes()).file(file.path)
    for group in range(file.groups):
        known = None if axes is None else axes.groups.get((file.path, group))
        try:
            table = _checked(file, opened, group, [name] if known else list(dict.fromkeys([STEP, TIME, name])))
            step, at = known or (whole_array(table[STEP], pa.int64()), whole_array(table[TIME]))
            value = whole_array(table[name])
            if step.null_count or not len(step) == len(at) == len(value):
                raise ValueError("they lack a step, a time or a value")
        except FileNotFoundError:
            raise
        except _UNREADABLE as problem:
            rows = opened.metadata.row_group(group).num_rows
            dropped.append(Dropped(file.path.name, f"it is damaged ({problem})", rows, "rows"))
            continue
        if axes is not None:
            axes.groups[file.path, group] = step, at
        yield step, at, value


def _checked(file: DataFile, opened: pq.ParquetFile, group: int, names: list[str]) -> pa.Table:
    """Some columns of a row group, after checking their checksums."""
    for name in names if file.sums else ():
        compaction.check_column(file.path, file.sums, opened.metadata, group, file.indices[name])
    return opened.read_row_group(group, columns=names)


def opened_file(path: Path) -> pa.OSFile:
    return pa.OSFile(os.fsencode(path))  # names need not be UTF-8


def whole_array(column: pa.ChunkedArray, kind: pa.DataType | None = None) -> pa.Array:
    """A column as one array of float64 or `kind`, without a copy if possible."""
    whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    wanted = kind or pa.float64()
    return whole if whole.type == wanted else whole.cast(wanted, safe=kind is not None)


def despite_compaction(read: Callable[[], _Result], before_again: Callable[[], None] | None = None) -> _Result:
    """Run `read` again if files vanished meanwhile: a closing run replaces its segments by Parquet."""
    for _ in range(3):
        try:
            return read()
        except FileNotFoundError:
            if before_again is not None:
                before_again()
    return read()
