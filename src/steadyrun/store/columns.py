"""Reads one column of one table out of the files of a rank: Parquet and segments, oldest first."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from steadyrun.records import Dropped
from steadyrun.store.compact import REPLACES
from steadyrun.store.layout import parse_parquet, parse_segment
from steadyrun.store.segment import STEP, TIME, SegmentReader

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class DataFile:
    """A file that holds rows of one table of one attempt."""

    path: Path
    table: str
    attempt: int
    part: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Points:
    """The present values of a column in one attempt, in the order they were written."""

    attempt: int
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64]


def data_files(folder: Path, dropped: list[Dropped]) -> list[DataFile]:
    """The files to read, in order; segments that a Parquet file replaces are left out."""
    files: list[DataFile] = []
    replaced: set[str] = set()
    for path in sorted(folder.glob("*.parquet")):
        if (parsed := parse_parquet(path.name)) is None:
            continue
        try:
            with _opened(path) as source:
                schema = pq.read_schema(source)
        except (pa.ArrowInvalid, OSError) as problem:
            if not path.exists():
                raise FileNotFoundError(path) from problem
            dropped.append(Dropped(path.name, f"not readable as Parquet ({problem})", path.stat().st_size))
            continue
        replaced.update(json.loads((schema.metadata or {}).get(REPLACES, b"[]")))
        files.append(DataFile(path, parsed[0], parsed[1], 0, tuple(schema.names)))
    for path in sorted(folder.glob("*.arrow")):
        parsed_segment = parse_segment(path.name)
        if parsed_segment is None or path.name in replaced:
            continue
        reader = SegmentReader(path)
        dropped += reader.dropped
        files.append(DataFile(path, *parsed_segment, tuple(reader.names)))
    return sorted(files, key=lambda file: (file.table, file.attempt, file.part))


Axes = dict[tuple[Path, int], tuple[pa.Array, pa.Array]]
"""Steps and times that were read, by Parquet file and row group: every series of a table has the same."""


def read_points(file: DataFile, name: str, dropped: list[Dropped], axes: Axes | None = None) -> Points:
    """The points of column `name` in `file`; what cannot be verified is left out and noted.

    `axes` keeps steps and times from one call to the next, for readers of many series.
    """
    return read_on(file, name, dropped, 0, axes)[0]


def read_on(
    file: DataFile, name: str, dropped: list[Dropped], start: int, axes: Axes | None = None
) -> tuple[Points, int]:
    """The points from a place in the file on, and the place from which to read on later; Parquet is read whole."""
    if file.path.suffix == ".parquet":
        return _points(file, _parquet_rows(file.path, name, dropped, axes)), start
    reader = SegmentReader(file.path)
    points = _points(file, _segment_rows(reader, name, start))
    dropped += reader.dropped
    return points, max(start, reader.position)


def _points(file: DataFile, rows: Iterator[tuple[pa.Array, pa.Array, pa.Array]]) -> Points:
    steps, times, values = [], [], []
    for step, at, value in rows:
        present = slice(None) if value.null_count == 0 else np.asarray(value.is_valid())
        steps.append(np.asarray(step)[present])
        times.append(np.asarray(at)[present])
        values.append(value.to_numpy(zero_copy_only=False)[present])
    return Points(
        file.attempt,
        np.concatenate([*steps, np.empty(0, np.int64)]).astype(np.int64, copy=False),
        np.concatenate([*values, np.empty(0)]),
        np.concatenate([*times, np.empty(0)]),
    )


def _segment_rows(reader: SegmentReader, name: str, start: int) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    for batch in reader.batches([STEP, TIME, name], start):
        step, at, value = batch.columns[STEP], batch.columns[TIME], batch.columns[name]
        if step is not None and at is not None and value is not None:
            yield step, at, value


def _parquet_rows(
    path: Path, name: str, dropped: list[Dropped], axes: Axes | None
) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    with _opened(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            known = None if axes is None else axes.get((path, group))
            try:
                table = file.read_row_group(group, columns=[name] if known else [STEP, TIME, name])
            except (pa.ArrowInvalid, OSError) as problem:
                rows = file.metadata.row_group(group).num_rows
                dropped.append(Dropped(path.name, f"damaged ({problem})", rows, "rows"))
                continue
            step, at = known or (_whole(table[STEP]), _whole(table[TIME]))
            if axes is not None:
                axes[path, group] = step, at
            yield step, at, _whole(table[name])


def _opened(path: Path) -> pa.OSFile:
    return pa.OSFile(os.fsencode(path))  # names need not be UTF-8


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def despite_compaction(read: Callable[[], _Result], before_again: Callable[[], None] | None = None) -> _Result:
    """Run `read` again if files vanished under it: a run that closes replaces its segments by Parquet."""
    for _ in range(3):
        try:
            return read()
        except FileNotFoundError:
            if before_again is not None:
                before_again()
    return read()
