"""Weights & Biases: the `.wandb` file that every run keeps on disk, online or offline."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.extras import needed
from steadyrun.importers.formats.jsonfile import row_of
from steadyrun.importers.log_rows import LONGEST_NAME, Anomalies, FileSample, Format, Log, Row, SourceRun, packed

# W&B's own reader is its program `wandb-core`, which only uploads; the reader in Python was dropped from the package.
# So the frame around the records is read here: LevelDB's log format, blocks of 32 KiB with fragments of records in
# them. What is in a record is read by W&B's own protobuf classes.

MAGIC = b":W&B"
_HEAD = struct.Struct("<4sHB")  # magic, 0xBEE1, version
_FRAGMENT = struct.Struct("<IHB")  # checksum, length, kind
_BLOCK = 32_768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_STARTS = {kind: zlib.crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)}
_LARGEST = 256 * 2**20  # bytes of one record


def records(path: Path, anomalies: Anomalies) -> Iterator[Any]:
    """W&B's records in the order of the file; if it is damaged, the rest of that block is passed over."""
    _check_start(path)
    parse = needed("wandb.proto.wandb_internal_pb2", "wandb", path).Record.FromString
    undecodable = needed("google.protobuf.message", "wandb", path).DecodeError
    for at, data in _framed(path, anomalies):
        try:
            yield parse(data)
        except undecodable:
            anomalies.note("records that W&B cannot decode", "left out", f"{path.name}, byte {at:,}")


def _check_start(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(_HEAD.size)
    if len(start) < _HEAD.size or not start.startswith(MAGIC):
        raise LogError(f"{path}, byte 0: not a file of W&B. Give the folder run-…/ or a file run-….wandb.")


def _framed(path: Path, anomalies: Anomalies) -> Iterator[tuple[int, bytes]]:
    """(byte, record); fragments are put together."""
    record, began = bytearray(), -1
    for at, kind, data in _fragments(path, anomalies):
        if kind in (_WHOLE, _FIRST):
            if began >= 0:
                _damaged(path, anomalies, began)
            began, record = at, bytearray()
        if began < 0:
            continue  # the end of a record whose beginning is lost
        record += data
        if len(record) > _LARGEST:
            raise LogError(
                f"{path}, byte {began:,}: a record of more than {_LARGEST // 2**20} MB, so it is damaged or not a "
                "file of W&B. Export the run as CSV."
            )
        if kind in (_WHOLE, _LAST):
            yield began, bytes(record)
            record, began = bytearray(), -1
    if began >= 0:
        _damaged(path, anomalies, began)


def _fragments(path: Path, anomalies: Anomalies) -> Iterator[tuple[int, int, bytes]]:
    with path.open("rb") as file:
        start = file.read(_HEAD.size)
        base, block = 0, start + file.read(_BLOCK - _HEAD.size)
        offset = _HEAD.size
        while block:
            yield from _in_block(path, block, offset, base, anomalies)
            base, offset = base + len(block), 0
            anomalies.progress(base)
            block = file.read(_BLOCK)


def _in_block(
    path: Path, block: bytes, offset: int, base: int, anomalies: Anomalies
) -> Iterator[tuple[int, int, bytes]]:
    while len(block) - offset >= _FRAGMENT.size:
        checksum, length, kind = _FRAGMENT.unpack_from(block, offset)
        if not (checksum or length or kind):
            return  # the rest of a block that was filled up
        data = block[offset + _FRAGMENT.size : offset + _FRAGMENT.size + length]
        if kind not in _STARTS or len(data) < length or zlib.crc32(data, _STARTS[kind]) != checksum:
            _damaged(path, anomalies, base + offset)
            return
        yield base + offset, kind, data
        offset += _FRAGMENT.size + length
    if any(block[offset:]):
        _damaged(path, anomalies, base + offset)


def _damaged(path: Path, anomalies: Anomalies, at: int) -> None:
    anomalies.note(
        "a record that is cut off or damaged", "left out, with the rest of its block", f"{path.name}, byte {at:,}"
    )


_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-[\w-]+")
_RECORDS_BEFORE_NAME = 200  # records among which the run says its name


def _detect(sample: FileSample) -> bool:
    return sample.head.startswith(MAGIC)


def _file_of(path: Path) -> Path | None:
    """The `.wandb` file of a run's folder, or the file itself."""
    if path.is_file():
        return path
    files = sorted(file for file in path.glob("run-*.wandb") if file.is_file() and file.stat().st_size)
    return files[0] if files else None


def _folder(path: Path) -> bool:
    """A run's own folder: what else lies in it, such as the printed log, is the same run."""
    return bool(_FOLDER.fullmatch(path.name)) and _file_of(path) is not None


def _parts(path: Path) -> list[SourceRun]:
    """One run; it is called as it calls itself."""
    file = _file_of(path)
    name = "" if file is None else _name(file)
    return [SourceRun(name or (path.name if path.is_dir() else path.stem))]


def _name(file: Path) -> str:
    try:
        run = next(
            (
                record.run
                for record in islice(records(file, Anomalies()), _RECORDS_BEFORE_NAME)
                if record.HasField("run")
            ),
            None,
        )
    except LogError:
        return ""  # reading says what is wrong
    return "" if run is None else str(run.display_name or run.run_id)


def _read(path: Path, _key: str, anomalies: Anomalies) -> Log:
    file = _file_of(path)
    if file is None:
        raise LogError(f"{path} has no file run-….wandb. Give the folder of one run, or its files/output.log.")
    log = Log(iter(()))
    log.rows = packed(_rows(file, anomalies, log))
    return log


def _rows(file: Path, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    record_count = row_count = 0
    for record in records(file, anomalies):
        record_count += 1
        if record.HasField("history"):
            row = row_of(_values(record.history.item, anomalies, file), anomalies, f"record {record_count:,}")
            if not row:
                continue
            row_count += 1
            row.setdefault("_step", float(record.history.step.num))
            yield row
        elif record.HasField("run"):
            log.config.update(_config(record.run.config.update, anomalies, file))
        elif record.HasField("config"):
            log.config.update(_config(record.config.update, anomalies, file))
    if not record_count:
        raise LogError(
            f"{file}, byte 7: no record of W&B can be read here; it is damaged or cut off. Export the run as CSV."
        )
    if not row_count:
        raise LogError(f"{file} has no history in it: the run logged nothing, or the file is cut off before it did")


def _config(items: Iterable[Any], anomalies: Anomalies, file: Path) -> dict[str, Any]:
    return {name: value for name, value in _values(items, anomalies, file).items() if name != "_wandb"}


def _values(items: Iterable[Any], anomalies: Anomalies, file: Path) -> dict[str, Any]:
    """Names and values of a record; nested names are joined."""
    values: dict[str, Any] = {}
    media: list[str] = []
    for item in items:
        name = "/".join(item.nested_key) or item.key
        try:
            value = json.loads(item.value_json)
        except (ValueError, RecursionError):
            anomalies.note("values that are not JSON", "left out", f"{file.name}, {name[:80]!r}")
            continue
        if name.endswith("/_type"):
            media.append(name.removesuffix("/_type"))
        elif isinstance(value, dict) and "_type" in value:
            media.append(name)
        else:
            values[name] = value
    for name in media:
        anomalies.note("images, histograms, tables and the like", "left out", repr(name[:80]))
    folders = frozenset(media)
    return {name: value for name, value in values.items() if not _within(name, folders)} if media else values


def _within(name: str, folders: frozenset[str]) -> bool:
    """Whether a name is below one of these; one that is too long to be kept is not looked at beyond that."""
    parts = name[:LONGEST_NAME].split("/")[:-1]
    return any(folder in folders for folder in accumulate(parts, lambda above, part: f"{above}/{part}"))


FORMAT = Format("wandb", "Weights & Biases (.wandb)", _detect, _read, _parts, _folder, extra="wandb")
