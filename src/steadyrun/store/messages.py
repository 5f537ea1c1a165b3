"""The little that must be known of an Arrow message before Arrow itself reads it.

Arrow unpacks compressed batches at once, however small the file and large what comes out. We write none, so one that is
compressed is not ours.
"""

from __future__ import annotations

import struct

_RECORD_BATCH = 3  # of the union MessageHeader
_KIND, _HEADER, _BODY = 1, 2, 3  # fields of the table Message
_COMPRESSION = 3  # field of the table RecordBatch


def plain_batch(metadata: bytes) -> int | None:
    """The length of the body of an uncompressed record batch; None if the metadata is of something else."""
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
    """Where a field of a flatbuffers table lies; 0 where the table does not have it."""
    entries = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, entries)[0]:
        return 0
    offset: int = struct.unpack_from("<H", data, entries + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _unsigned(data: bytes, place: int) -> int:
    found: int = struct.unpack_from("<I", data, place)[0]
    return found
