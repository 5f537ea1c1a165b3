"""Compact the segments of each table to one Parquet file when a run closes.

The Parquet file is written beside the segments and renamed; only then are they deleted. It lists the segments
it replaces, so nothing counts twice if the process is killed between the two. A damaged segment is kept: its
readable part is in the Parquet file, and the file itself stays as evidence.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from steadyrun.records import Dropped
from steadyrun.store.layout import parquet_name, parse_segment
from steadyrun.store.segment import STEP, TIME, SegmentReader, schema_of

# The seal: checksums of columns and footer, before the footer. Parquet itself has none for page headers and footer.
_MARK = b"steadyrun-crc32:"
_SIZE = len(_MARK) + 16  # then the checksum of everything after the columns, and the number of column checksums
_END = struct.Struct("<I4s")  # the footer's length and the magic bytes
_LARGEST = 256 * 2**20  # largest footer to read, in bytes


def seal(file: BinaryIO) -> None:
    """Insert the checksums before the footer of a complete Parquet file."""
    start, footer = _footer(file)
    metadata = pq.read_metadata(file)
    sums = b"".join(
        _hex(_chunk(file, metadata, group, column))
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    file.seek(start)
    file.write(sums + _mark(sums, footer) + footer)


def check(path: Path) -> bytes:
    """The checksums of a file's columns, b"" if it has none; a ValueError if the footer is damaged."""
    with path.open("rb") as file:
        start, footer = _footer(file)
        mark = _before(file, start, _SIZE)
        if not mark.startswith(_MARK):
            return b""
        try:
            sums = _before(file, start - _SIZE, 8 * int(mark[-8:], 16))
        except ValueError:
            sums = b""
    if mark != _mark(sums, footer):
        raise ValueError("the checksum of its footer does not match")
    return sums


def check_column(path: Path, sums: bytes, metadata: pq.FileMetaData, group: int, column: int) -> None:
    """Raise a ValueError if the bytes of a column in a row group are damaged."""
    offset = 8 * (group * metadata.num_columns + column)
    with path.open("rb") as file:
        if _hex(_chunk(file, metadata, group, column)) != sums[offset : offset + 8]:
            raise ValueError(f"the checksum of {metadata.schema.column(column).name!r} does not match")


def _chunk(file: BinaryIO, metadata: pq.FileMetaData, group: int, column: int) -> bytes:
    chunk = metadata.row_group(group).column(column)
    begins = [chunk.data_page_offset] + ([chunk.dictionary_page_offset] if chunk.has_dictionary_page else [])
    file.seek(min(begins))
    return file.read(chunk.total_compressed_size)


def _hex(data: bytes) -> bytes:
    return f"{zlib.crc32(data):08x}".encode()


def _mark(sums: bytes, footer: bytes) -> bytes:
    return _MARK + _hex(sums + footer) + f"{len(sums) // 8:08x}".encode()


def _before(file: BinaryIO, end: int, size: int) -> bytes:
    file.seek(max(0, end - size))
    return file.read(min(end, size))


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """The position of the footer, and its bytes up to the end of the file."""
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        raise ValueError("it is truncated")
    file.seek(size - _END.size)
    length, magic = _END.unpack(file.read(_END.size))
    if magic != b"PAR1" or not length + _END.size <= min(size, _LARGEST):
        raise ValueError("it does not end like a Parquet file")
    start = size - _END.size - length
    file.seek(start)
    return start, file.read(size - start)


REPLACES = b"steadyrun.replaces"
_CELLS_PER_GROUP, _FEWEST_ROWS = 2_000_000, 4_096


def compact(folder: Path, attempt: int) -> list[Dropped]:
    """Compact the tables of one attempt; return the damage of its segments."""
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
    """The rows of all segments in groups of limited size, with one segment in memory at a time."""
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
