"""The records of a `.wandb` file.

W&B's own reader is its program `wandb-core`, which only uploads; the reader in Python was dropped from the package. So
the frame around the records is read here: LevelDB's log format, blocks of 32 KiB with fragments of records in them.
What is in a record is read by W&B's own protobuf classes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.extras import needed
from steadyrun.importers.told import Told

MAGIC = b":W&B"
_HEAD = struct.Struct("<4sHB")  # magic, 0xBEE1, version
_FRAGMENT = struct.Struct("<IHB")  # checksum, length, kind
_BLOCK = 32_768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_STARTS = {kind: zlib.crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}
_LARGEST = 256 * 2**20  # bytes of one record


def records(path: Path, told: Told) -> Iterator[Any]:
    """W&B's records in the order of the file; where it is damaged, the rest of that block is passed over."""
    _check_start(path)
    parse = needed("wandb.proto.wandb_internal_pb2", "wandb", path).Record.FromString
    undecodable = needed("google.protobuf.message", "wandb", path).DecodeError
    for at, data in _framed(path, told):
        try:
            yield parse(data)
        except undecodable:
            told.odd("records that W&B cannot decode", "left out", f"{path.name}, byte {at:,}")


def _check_start(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(_HEAD.size)
    if len(start) < _HEAD.size or not start.startswith(MAGIC):
        raise LogError(f"{path}, byte 0: it does not begin like a file of W&B")


def _framed(path: Path, told: Told) -> Iterator[tuple[int, bytes]]:
    """(byte, record); fragments are put together."""
    held, began = bytearray(), -1
    for at, kind, data in _fragments(path, told):
        if kind in (_WHOLE, _FIRST):
            if began >= 0:
                _damaged(path, told, began)
            began, held = at, bytearray()
        if began < 0:
            continue  # the end of a record whose beginning is lost
        held += data
        if len(held) > _LARGEST:
            raise LogError(f"{path}, byte {began:,}: a record of more than {_LARGEST // 2**20} MB. Is it a log of W&B?")
        if kind in (_WHOLE, _LAST):
            yield began, bytes(held)
            held, began = bytearray(), -1
    if began >= 0:
        _damaged(path, told, began)


def _fragments(path: Path, told: Told) -> Iterator[tuple[int, int, bytes]]:
    with path.open("rb") as file:
        start = file.read(_HEAD.size)
        base, block = 0, start + file.read(_BLOCK - _HEAD.size)
        place = _HEAD.size
        while block:
            yield from _in_block(path, block, place, base, told)
            base, place = base + len(block), 0
            told.progress(base)
            block = file.read(_BLOCK)


def _in_block(path: Path, block: bytes, place: int, base: int, told: Told) -> Iterator[tuple[int, int, bytes]]:
    while len(block) - place >= _FRAGMENT.size:
        checksum, length, kind = _FRAGMENT.unpack_from(block, place)
        if not (checksum or length or kind):
            return  # the rest of a block that was filled up
        data = block[place + _FRAGMENT.size : place + _FRAGMENT.size + length]
        if kind not in _STARTS or len(data) < length or zlib.crc32(data, _STARTS[kind]) != checksum:
            _damaged(path, told, base + place)
            return
        yield base + place, kind, data
        place += _FRAGMENT.size + length
    if any(block[place:]):
        _damaged(path, told, base + place)


def _damaged(path: Path, told: Told, at: int) -> None:
    told.odd("a record that is cut off or damaged", "left out, with the rest of its block", f"{path.name}, byte {at:,}")
