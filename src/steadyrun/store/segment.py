"""One Arrow IPC stream file: written append-only, a checksum on every column of every record batch.

Arrow itself detects neither a flipped byte nor a zero-filled tail. Therefore each batch's metadata holds its
row count, one CRC-32 per column, and the CRC-32 of the column names. A column can be verified without reading
the others, and a batch is one `write`, so a killed process leaves at most one incomplete batch.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steadyrun.records import Dropped
from steadyrun.store.jsonio import regular_size

# Arrow unpacks compressed batches whatever their size. We write none, so they are rejected unread.
_RECORD_BATCH = 3  # of the union MessageHeader
_KIND, _HEADER, _BODY = 1, 2, 3  # fields of the table Message
_COMPRESSION = 3  # field of the table RecordBatch


def plain_batch(metadata: bytes) -> int | None:
    """The length of the body of an uncompressed record batch; None for other metadata."""
    try:
        message = _unsigned(metadata, 0)
        kind, header, body = (_field(metadata, message, number) for number in (_KIND, _HEADER, _BODY))
        if not kind or not header or metadata[kind] != _RECORD_BATCH:
            return None
        if _field(metadata, header + _unsigned(metadata, header), _COMPRESSION):
            return None
        length: int = struct.unpack_from("<q", metadata, body)[0] if body else 0
    except (struct.error, IndexError):
        return None
    return length if length >= 0 else None


def _field(data: bytes, table: int, number: int) -> int:
    """The position of a field in a flatbuffers table; 0 if the table does not have it."""
    entries = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, entries)[0]:
        return 0
    offset: int = struct.unpack_from("<H", data, entries + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _unsigned(data: bytes, offset: int) -> int:
    number: int = struct.unpack_from("<I", data, offset)[0]
    return number


STEP, TIME = "step", "time"
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_MESSAGE_START = b"\xff\xff\xff\xff"
_UNREADABLE = (pa.ArrowException, OSError)
_LARGEST = 2**32  # largest segment to read, in bytes; segments are closed at a hundredth of it
_SEARCHED = 2**28  # bytes after damage to search for the next batch
_PIECE = 2**24


def schema_of(columns: Sequence[str]) -> pa.Schema:
    fields = [pa.field(STEP, pa.int64()), pa.field(TIME, pa.float64())]
    return pa.schema(fields + [pa.field(name, pa.float64()) for name in columns])


def checksum(column: pa.Array) -> int:
    """CRC-32 of the validity bits, if any value is missing, then of the values."""
    rows = len(column)
    validity, values = column.buffers()
    crc = zlib.crc32(memoryview(validity)[: (rows + 7) // 8]) if column.null_count else 0
    return zlib.crc32(memoryview(values)[: rows * 8], crc)


def names_checksum(names: Sequence[str]) -> str:
    return f"{zlib.crc32(chr(0).join(names).encode()):08x}"


class SegmentWriter:
    """Appends record batches to a new file; never opens an existing one: one writer per file."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = tuple(columns)
        self._schema = schema_of(columns)
        self._names_crc = names_checksum(self._schema.names)
        head = self._schema.serialize().to_pybytes()
        self._head_size = len(head)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self.size = 0
        self.rows = 0
        try:
            self._write(head)
        except BaseException:  # a file without a header is unreadable
            os.close(self._descriptor)
            path.unlink(missing_ok=True)
            raise

    def write(self, columns: Sequence[Sequence[float | None] | pa.Array]) -> None:
        """Append one batch: steps, times, then the values of each column in order; None for missing values."""
        batch = pa.record_batch(
            [_array(values, field.type) for values, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )
        metadata = {
            "rows": str(batch.num_rows),
            "names": self._names_crc,
            "crc": "".join(f"{checksum(column):08x}" for column in batch.columns),
        }
        sink = pa.BufferOutputStream()
        pa.ipc.new_stream(sink, self._schema).write_batch(batch, custom_metadata=metadata)
        self._write(memoryview(sink.getvalue())[self._head_size :])
        self.rows += batch.num_rows

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted or moved: further writes would be lost."""
        try:
            return not os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return True
        except OSError:  # the filesystem does not respond now
            return False

    def close(self) -> None:
        try:
            self._write(END_OF_STREAM)
        finally:
            os.close(self._descriptor)

    def abandon(self) -> None:
        """Close after a failed write; the reader skips the incomplete tail."""
        os.close(self._descriptor)

    def _write(self, data: Any) -> None:
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            self.size += written
            view = view[written:]


@dataclass(frozen=True)
class Batch:
    """Columns of one verified record batch; a column whose checksum failed is None."""

    rows: int
    columns: dict[str, pa.Array | None]


class SegmentReader:
    """Reads chosen columns of a segment through a memory map, so the others are never loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped: list[Dropped] = []
        self._head_size = 0
        self.position = 0  # batches were read up to here
        self.names: list[str] = []
        try:
            self._data, size = _map(path)
        except FileNotFoundError:
            raise
        except OSError as problem:
            self._drop(1, f"it cannot be read ({problem})", "file")
            return
        if size > _LARGEST:
            self._drop(size - len(self._data), "it is larger than steadyrun reads of one segment")
        source = pa.BufferReader(self._data)
        try:
            schema = pa.ipc.open_stream(source).schema
            names = list(schema.names)
        except (UnicodeDecodeError, *_UNREADABLE):
            names = []
        if not names or schema != schema_of(names[2:]):
            if len(self._data):
                self._drop(len(self._data), "its header is damaged or incomplete")
            else:
                self._drop(1, "it is empty: its rows are lost, or it is being written now", "file")
            return
        self._head_size = source.tell()
        self.names = names
        self._names_crc = names_checksum(self.names)
        if self._first_batch_disagrees():
            self._drop(len(self._data), "its header is damaged")
            self.names = []

    def _first_batch_disagrees(self) -> bool:
        """Whether the first batch is readable but has other column names: a flipped byte in the header."""
        if self._message_end(self._head_size) is None:
            return False
        try:
            reader = pa.ipc.open_stream(self._data, options=pa.ipc.IpcReadOptions(included_fields=[0]))
            _, metadata = reader.read_next_batch_with_custom_metadata()
        except (StopIteration, *_UNREADABLE):
            return False
        said = (metadata or {}).get(b"names")
        return said is not None and said.decode(errors="replace") != self._names_crc

    def batches(self, wanted: Sequence[str], start: int = 0) -> Iterator[Batch]:
        """Verified batches with the `wanted` columns; unreadable data is reported in `dropped`.

        `start` is the `position` of an earlier reader of this file, for following it.
        """
        chosen = frozenset(wanted)
        present = [index for index, name in enumerate(self.names) if name in chosen]
        position: int | None = max(start, self._head_size)
        while self.names and position is not None and position < len(self._data):
            position = yield from self._run_of_batches(position, present)

    def _run_of_batches(self, start: int, present: list[int]) -> Generator[Batch, None, int | None]:
        """Batches from `start` to the end or to damage; returns the position to continue from, None at the end."""
        source, offset = self._stream_at(start)
        reader = pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(included_fields=present))
        while True:
            position = self.position = source.tell() + offset
            if len(self._data) - position > len(END_OF_STREAM) and self._message_end(position) is None:
                return self._skip_damage(position)
            try:
                batch, metadata = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                if position + len(END_OF_STREAM) >= len(self._data):
                    tail = len(self._data) - position
                    if tail and bytes(self._data[position:]) != END_OF_STREAM:
                        self._drop(tail, "its tail is incomplete or zero-filled")
                    return None
                return position if position > start else self._skip_damage(position)
            except _UNREADABLE:
                return self._skip_damage(position)
            if (checksums := self._trusted(batch, metadata)) is None:
                return self._skip_damage(position)
            verified = self._verified(batch, checksums, present)
            yield verified
            if None in verified.columns.values():  # then its stated length may also be wrong
                return self._next_batch(position + 8)

    def _stream_at(self, start: int) -> tuple[pa.BufferReader, int]:
        """A source with the schema and the batches from `start`, and the offset of its positions."""
        if start == self._head_size:
            return pa.BufferReader(self._data), 0
        end = start
        while end < start + _PIECE and (next_end := self._message_end(end)) is not None:
            end = next_end
        return self._joined(start, max(end, start + len(END_OF_STREAM))), start - self._head_size

    def _joined(self, start: int, end: int) -> pa.BufferReader:
        """The schema, and the bytes from `start` to `end`."""
        return pa.BufferReader(bytes(self._data[: self._head_size]) + bytes(self._data[start:end]))

    def _skip_damage(self, start: int) -> int | None:
        """Skip the data between `start` and the next readable batch."""
        readable = self._next_batch(start + 8)
        if readable is not None:
            self._drop(readable - start, "damaged")
            return readable
        zero = all(not any(piece) for _, piece in self._pieces(start))
        why = "zero-filled" if zero else "a part is incomplete or damaged: the writer was stopped, or is writing now"
        self._drop(len(self._data) - start, why)
        return None

    def _next_batch(self, start: int) -> int | None:
        """The position of the next readable batch at or after `start`."""
        tried = 0  # bytes: nested pseudo-messages must not be read repeatedly
        for offset, piece in self._pieces(start):
            for position in _aligned(piece, offset):
                end = self._message_end(position)
                if end is None or (tried := tried + end - position) > 2 * _SEARCHED:
                    continue
                if self._reads(position, end):
                    return position
        return None

    def _pieces(self, start: int) -> Iterator[tuple[int, bytes]]:
        """The data after `start` to search, in pieces with their positions."""
        end = min(len(self._data), start + _SEARCHED)
        for offset in range(start, end, _PIECE):
            yield offset, bytes(self._data[offset : min(end, offset + _PIECE)])

    def _reads(self, position: int, end: int) -> bool:
        try:
            reader = pa.ipc.open_stream(self._joined(position, end))
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except (StopIteration, *_UNREADABLE):
            return False
        return self._trusted(batch, metadata) is not None

    def _message_end(self, position: int) -> int | None:
        """The end of the batch at `position`; None if there is no valid batch."""
        prefix = bytes(self._data[position : position + 8])
        size = int.from_bytes(prefix[4:], "little", signed=True)
        if not prefix.startswith(_MESSAGE_START) or not 0 < size <= len(self._data) - position - 8:
            return None
        body = plain_batch(bytes(self._data[position + 8 : position + 8 + size]))
        end = None if body is None else position + 8 + size + body
        return end if end is not None and end <= len(self._data) else None

    def _trusted(self, batch: pa.RecordBatch, metadata: Any) -> str | None:
        """The batch's column checksums, if its metadata fits the batch and this file; else None."""
        try:
            fits = int(metadata[b"rows"]) == batch.num_rows and metadata[b"names"].decode() == self._names_crc
            checksums: str = metadata[b"crc"].decode()
        except (KeyError, TypeError, ValueError):
            return None
        return checksums if fits and len(checksums) == 8 * len(self.names) else None

    def _verified(self, batch: pa.RecordBatch, checksums: str, present: list[int]) -> Batch:
        rows = batch.num_rows
        columns: dict[str, pa.Array | None] = {}
        for index, column in zip(present, batch.columns, strict=True):
            good = _sound(column, rows) and f"{checksum(column):08x}" == checksums[8 * index : 8 * index + 8]
            columns[self.names[index]] = column if good else None
            if not good:
                self._drop(rows, f"the checksum of {self.names[index]!r} does not match", "rows")
        return Batch(rows, columns)

    def _drop(self, size: int, reason: str, unit: str = "bytes") -> None:
        self.dropped.append(Dropped(self.path.name, reason, size, unit))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """Values as an array without an offset into its buffers, because checksums cover buffers."""
    if isinstance(values, pa.Array):
        return values if values.offset == 0 else pa.concat_arrays([values])
    dtype = np.dtype(np.int64 if kind == pa.int64() else np.float64)
    if isinstance(values, np.ndarray) and values.dtype == dtype:
        return _from_numpy(np.ascontiguousarray(values), None, kind)
    if not _are_exact(values, dtype):
        return pa.array(values, type=kind)
    missing = np.fromiter((value is None for value in values), np.bool_, len(values)) if None in values else None
    filled = [0.0 if value is None else value for value in values] if missing is not None else values
    return _from_numpy(np.array(filled, dtype), missing, kind)


def _are_exact(values: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Whether numpy converts them like Arrow, which rejects integers that a float cannot represent."""
    kinds = set(map(type, values)) - {type(None)}
    whole = {kind for kind in kinds if kind is int}
    numbers = kinds - whole if dtype == np.float64 else set()
    if kinds - whole - {kind for kind in numbers if issubclass(kind, float | np.floating)}:
        return False
    return not whole or all(type(value) is not int or -(2**53) <= value <= 2**53 for value in values)


def _from_numpy(values: Any, missing: Any, kind: pa.DataType) -> pa.Array:
    """An array from its buffers: `pa.array` would import pandas, which takes as long as a thousand flushes."""
    validity = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def to_numpy(array: pa.Array) -> Any:
    """The values of an array, NaN for missing ones; without pandas, as above."""
    if array.type not in (pa.int64(), pa.float64()) or (array.null_count and array.type == pa.int64()):
        return array.to_numpy(zero_copy_only=False)
    dtype = np.dtype(np.int64 if array.type == pa.int64() else np.float64)
    data = array.buffers()[1]
    if data is None:
        return np.full(len(array), np.nan)
    values = np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)
    return np.where(is_present(array), values, np.nan) if array.null_count else values


def is_present(array: pa.Array) -> Any:
    """The mask of elements with a value."""
    validity = array.buffers()[0]
    if validity is None or not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)


def _sound(column: pa.Array, rows: int) -> bool:
    """Whether the buffers are large enough for the row count, which damaged metadata can contradict."""
    validity, values = column.buffers()
    enough = values is not None and values.size >= rows * 8
    return enough and (not column.null_count or (validity is not None and validity.size >= (rows + 7) // 8))


def _aligned(piece: bytes, offset: int) -> Iterator[int]:
    """The offsets, multiples of eight, at which a message may begin in a piece of the file at `offset`."""
    mark = piece.find(_MESSAGE_START)
    while mark >= 0:
        if (offset + mark) % 8 == 0:
            yield offset + mark
        mark = piece.find(_MESSAGE_START, mark + 8 - (offset + mark) % 8)


def _map(path: Path) -> tuple[pa.Buffer, int]:
    """The readable part of the file, and its size."""
    size = regular_size(path)
    if size == 0:
        return pa.py_buffer(b""), 0
    with pa.memory_map(os.fsencode(path)) as source:  # names need not be UTF-8
        return source.read_buffer(_LARGEST), size
