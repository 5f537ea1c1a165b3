"""When a run closes, the segments of each table become one Parquet file.

The Parquet file is written beside the segments and renamed into place; only then are they deleted. It
names the segments it replaces, so a process killed between the two leaves nothing counted twice. A damaged
segment is kept: what could be read of it is in the Parquet file, and the file itself stays as evidence.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from steadyrun.records import Dropped
from steadyrun.store.footer import seal
from steadyrun.store.layout import parquet_name, parse_segment
from steadyrun.store.segment import STEP, TIME, SegmentReader, schema_of

REPLACES = b"steadyrun.replaces"
_CELLS_PER_GROUP, _FEWEST_ROWS = 2_000_000, 4_096


def compact(folder: Path, attempt: int) -> list[Dropped]:
    """Compact the tables of one attempt; returns what could not be read of its segments."""
    tables: dict[str, list[tuple[int, Path]]] = {}
    for path in folder.glob("*.arrow"):
        parsed = parse_segment(path.name)
        if parsed and parsed[1] == attempt:
            tables.setdefault(parsed[0], []).append((parsed[2], path))
    dropped: list[Dropped] = []
    for table, parts in sorted(tables.items()):
        paths = [path for _, path in sorted(parts)]
        dropped += _compact_table(folder / parquet_name(table, attempt), paths)
    return dropped


def _compact_table(target: Path, paths: list[Path]) -> list[Dropped]:
    names = dict.fromkeys(name for path in paths for name in SegmentReader(path).names)
    schema = schema_of([name for name in names if name not in {STEP, TIME}]).with_metadata(
        {REPLACES: json.dumps([path.name for path in paths])}
    )
    dropped: list[Dropped] = []
    temporary = target.with_suffix(".parquet.tmp")
    try:
        _write_groups(temporary, schema, _groups(schema, paths, dropped))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    damaged = {drop.file for drop in dropped}
    for path in paths:
        if path.name not in damaged:
            path.unlink()
    return dropped


def _write_groups(path: Path, schema: pa.Schema, groups: Iterator[pa.Table]) -> None:
    with path.open("w+b") as file:
        with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
            for group in groups:
                writer.write_table(group)
        seal(file)
        file.flush()
        os.fsync(file.fileno())


def _groups(schema: pa.Schema, paths: list[Path], dropped: list[Dropped]) -> Iterator[pa.Table]:
    """The rows of all segments in groups of bounded size; one segment is mapped at a time."""
    most = max(_FEWEST_ROWS, _CELLS_PER_GROUP // len(schema))
    pending: list[pa.RecordBatch] = []
    rows = 0
    for path in paths:
        segment = SegmentReader(path)
        for batch in segment.batches(segment.names):
            if batch.columns[STEP] is None or batch.columns[TIME] is None:
                continue
            pending.append(_aligned(schema, batch.rows, batch.columns))
            rows += batch.rows
            if rows >= most:
                yield pa.Table.from_batches(pending, schema)
                pending, rows = [], 0
        dropped += segment.dropped
    if pending:
        yield pa.Table.from_batches(pending, schema)


def _aligned(schema: pa.Schema, rows: int, columns: dict[str, pa.Array | None]) -> pa.RecordBatch:
    arrays = [columns.get(field.name) for field in schema]
    filled = [
        pa.nulls(rows, field.type) if array is None else array for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.record_batch(filled, schema=schema)
