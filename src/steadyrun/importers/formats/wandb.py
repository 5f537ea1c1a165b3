"""Weights & Biases: the `.wandb` file that every run keeps on disk, online or offline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.formats.objects import row_of
from steadyrun.importers.formats.wandb_records import MAGIC, records
from steadyrun.importers.model import LONGEST_NAME, Format, Log, Look, Part, Row, packed
from steadyrun.importers.told import Told

_FOLDER = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-[\w-]+")
_FIRST = 200  # records among which the run says its name


def _detect(look: Look) -> bool:
    return look.head.startswith(MAGIC)


def _file_of(path: Path) -> Path | None:
    """The `.wandb` file of a run's folder, or the file itself."""
    if path.is_file():
        return path
    found = sorted(each for each in path.glob("run-*.wandb") if each.is_file() and each.stat().st_size)
    return found[0] if found else None


def _folder(path: Path) -> bool:
    """A run's own folder: what else lies in it, such as the printed log, is the same run."""
    return bool(_FOLDER.fullmatch(path.name)) and _file_of(path) is not None


def _parts(path: Path) -> list[Part]:
    """One run; it is called as it calls itself."""
    file = _file_of(path)
    name = "" if file is None else _name(file)
    return [Part(name or (path.name if path.is_dir() else path.stem))]


def _name(file: Path) -> str:
    try:
        found = next((each.run for each in islice(records(file, Told()), _FIRST) if each.HasField("run")), None)
    except LogError:
        return ""  # reading says what is wrong
    return "" if found is None else str(found.display_name or found.run_id)


def _read(path: Path, _key: str, told: Told) -> Log:
    file = _file_of(path)
    if file is None:
        raise LogError(f"{path} has no file run-….wandb in it")
    log = Log(iter(()))
    log.rows = packed(_rows(file, told, log))
    return log


def _rows(file: Path, told: Told, log: Log) -> Iterator[Row]:
    read = found = 0
    for record in records(file, told):
        read += 1
        if record.HasField("history"):
            row = row_of(_values(record.history.item, told, file), told, f"record {read:,}")
            if not row:
                continue
            found += 1
            row.setdefault("_step", float(record.history.step.num))
            yield row
        elif record.HasField("run"):
            log.config.update(_config(record.run.config.update, told, file))
        elif record.HasField("config"):
            log.config.update(_config(record.config.update, told, file))
    if not read:
        raise LogError(f"{file}, byte 7: no record of W&B can be read here; it is damaged or cut off")
    if not found:
        raise LogError(f"{file} has no history in it: the run logged nothing, or the file is cut off before it did")


def _config(items: Iterable[Any], told: Told, file: Path) -> dict[str, Any]:
    return {name: held for name, held in _values(items, told, file).items() if name != "_wandb"}


def _values(items: Iterable[Any], told: Told, file: Path) -> dict[str, Any]:
    """Names and values of a record; nested names are joined."""
    found: dict[str, Any] = {}
    media: list[str] = []
    for item in items:
        name = "/".join(item.nested_key) or item.key
        try:
            held = json.loads(item.value_json)
        except (ValueError, RecursionError):
            told.odd("values that are no JSON", "left out", f"{file.name}, {name[:80]!r}")
            continue
        if name.endswith("/_type"):
            media.append(name.removesuffix("/_type"))
        elif isinstance(held, dict) and "_type" in held:
            media.append(name)
        else:
            found[name] = held
    for each in media:
        told.odd("images, histograms, tables and the like", "left out", repr(each[:80]))
    folders = frozenset(media)
    return {name: held for name, held in found.items() if not _within(name, folders)} if media else found


def _within(name: str, folders: frozenset[str]) -> bool:
    """Whether a name is below one of these; one that is too long to be kept is not looked at beyond that."""
    parts = name[:LONGEST_NAME].split("/")[:-1]
    return any(folder in folders for folder in accumulate(parts, lambda above, part: f"{above}/{part}"))


FORMAT = Format("wandb", "Weights & Biases (.wandb)", _detect, _read, _parts, _folder, extra="wandb")
