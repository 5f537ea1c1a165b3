"""Checksums of a Parquet file's columns and of its footer, in the bytes before the footer.

Parquet has checksums of what is in its pages, and none of the pages' headers and of the footer, which hold the names of
the columns and say how to read them. Readers of Parquet come from the end of the file and never see the seal; a file
without one is read as far as Parquet's own checksums go.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

_MARK = b"steadyrun-crc32:"
_SIZE = len(_MARK) + 16  # then the checksum of all behind the columns, and how many sums of columns there are
_END = struct.Struct("<I4s")  # the footer's length, and the magic
_LARGEST = 256 * 2**20  # bytes of a footer that is still read


def seal(file: BinaryIO) -> None:
    """Move the footer of a complete Parquet file behind the checksums."""
    place, footer = _footer(file)
    metadata = pq.read_metadata(file)
    sums = b"".join(
        _hex(_chunk(file, metadata, group, column))
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    file.seek(place)
    file.write(sums + _mark(sums, footer) + footer)


def check(path: Path) -> bytes:
    """The checksums of a file's columns, b"" where it has none; a ValueError if its footer is not what was written."""
    with path.open("rb") as file:
        place, footer = _footer(file)
        mark = _before(file, place, _SIZE)
        if not mark.startswith(_MARK):
            return b""
        try:
            sums = _before(file, place - _SIZE, 8 * int(mark[-8:], 16))
        except ValueError:
            sums = b""
    if mark != _mark(sums, footer):
        raise ValueError("the checksum of its footer does not match")
    return sums


def check_column(path: Path, sums: bytes, metadata: pq.FileMetaData, group: int, column: int) -> None:
    """A ValueError if the bytes of one column in one row group are not what was written."""
    place = 8 * (group * metadata.num_columns + column)
    with path.open("rb") as file:
        if _hex(_chunk(file, metadata, group, column)) != sums[place : place + 8]:
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
    """Where the footer begins, and its bytes up to the end of the file."""
    size = file.seek(0, os.SEEK_END)
    if size < _END.size:
        raise ValueError("it is cut off")
    file.seek(size - _END.size)
    length, magic = _END.unpack(file.read(_END.size))
    if magic != b"PAR1" or not length + _END.size <= min(size, _LARGEST):
        raise ValueError("its end is not that of a Parquet file")
    place = size - _END.size - length
    file.seek(place)
    return place, file.read(size - place)
