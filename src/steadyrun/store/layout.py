"""The layout of a run directory, and manifest.json."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steadyrun.errors import NewerSchemaError, RunDirectoryError, UsageError
from steadyrun.store.jsonio import dumps, read_json, replace_file

# The layout of a run directory.


SCHEMA = 1
MANIFEST = "manifest.json"
ENDED = {"finished", "stopped", "crashed", "killed", "imported"}
"""States after which nothing more is recorded."""

_SEGMENT = re.compile(r"(?P<table>[a-z_]+)-(?P<attempt>[0-9]{3,9})-(?P<part>[0-9]{5,9})\.arrow")
_PARQUET = re.compile(r"(?P<table>[a-z_]+)-(?P<attempt>[0-9]{3,9})\.parquet")
_CLAIM = re.compile(r"attempt-(?P<attempt>[0-9]{3,9})")
_RANK = re.compile(r"rank-(?P<rank>[0-9]{5,9})")
_STALE = 600  # seconds after which an unchanged temporary file is stale
_PLAIN_NAME = re.compile(r"[^/\\\0]{1,200}")


def plain_name(name: str) -> str:
    """`name` if it is a single path component, so that it cannot leave its folder."""
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name) or name in {".", ".."}:
        raise UsageError(f"{name!r} is not a valid name: give a folder name without slashes, such as 'run-1'")
    return name


def metrics_folder(root: Path, rank: int) -> Path:
    return root / "metrics" / f"rank-{rank:05d}"


def events_file(root: Path, rank: int) -> Path:
    return root / "events" / f"rank-{rank:05d}.jsonl"


def segment_name(table: str, attempt: int, part: int) -> str:
    return f"{table}-{attempt:03d}-{part:05d}.arrow"


def parquet_name(table: str, attempt: int) -> str:
    return f"{table}-{attempt:03d}.parquet"


def parse_segment(name: str) -> tuple[str, int, int] | None:
    """(table, attempt, part) of an Arrow segment's file name, or None for other files."""
    match = _SEGMENT.fullmatch(name)
    return (match["table"], int(match["attempt"]), int(match["part"])) if match else None


def parse_parquet(name: str) -> tuple[str, int] | None:
    """(table, attempt) of a compacted file's name, or None for other files."""
    match = _PARQUET.fullmatch(name)
    return (match["table"], int(match["attempt"])) if match else None


def claim_file(folder: Path, attempt: int) -> Path:
    """The file that reserves an attempt number in the folder of a rank."""
    return folder / f"attempt-{attempt:03d}"


def claim_attempt(root: Path, rank: int) -> int:
    """Reserve the next free attempt number of this rank; concurrent processes get different numbers."""
    folder = metrics_folder(root, rank)
    folder.mkdir(parents=True, exist_ok=True)
    attempt = last_attempt(root, rank) + 1
    while True:
        try:
            claim_file(folder, attempt).touch(exist_ok=False)
        except FileExistsError:
            attempt += 1
        else:
            return attempt


def remove_stale(root: Path, rank: int) -> None:
    """Remove stale temporary files of killed processes; a recent file may be in use."""
    folders = [metrics_folder(root, rank)]
    if rank == 0:
        folders += [root, root / "postmortems", *(root / "incidents").glob("*")]
    for path in (path for folder in folders for path in folder.glob("*.tmp")):
        try:
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _STALE:
                path.unlink()
        except OSError:  # already gone, or not removable
            continue


def ranks(root: Path) -> list[int]:
    """The ranks that have written to this run directory."""
    folders = (root / "metrics").glob("rank-*")
    files = (root / "events").glob("rank-*.jsonl")
    named = [_RANK.fullmatch(path.stem) for path in [*folders, *files]]
    return sorted({int(match["rank"]) for match in named if match})


def last_attempt(root: Path, rank: int) -> int:
    """The number of the newest attempt of this rank, 0 if there is none."""
    folder = metrics_folder(root, rank)
    return newest_attempt([path.name for path in folder.iterdir()] if folder.is_dir() else [])


def newest_attempt(names: Sequence[str]) -> int:
    """The newest attempt among the file names of a rank's folder, 0 if there is none."""
    parsed = [parse_segment(name) or parse_parquet(name) for name in names]
    claimed = [int(match["attempt"]) for name in names if (match := _CLAIM.fullmatch(name))]
    return max([*claimed, *(table_attempt[1] for table_attempt in parsed if table_attempt)], default=0)


# manifest.json: the declared and the inferred config, the environment, and how the run ended.


class ManifestText:
    """Writes a manifest as JSON; entries that are the same objects as last time are not encoded again.

    The description of a large model takes a hundred times as long as the few entries that change. Therefore callers
    replace an entry to change it, also each entry of `inferred`.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[Any, str]] = {}

    def write(self, root: Path, manifest: dict[str, Any]) -> None:
        """Replace the manifest by rename."""
        replace_file(root / MANIFEST, self._object({"schema": SCHEMA, **manifest}, ()) + "\n")

    def _object(self, entries: Mapping[str, Any], path: tuple[str, ...]) -> str:
        lines = [f"{dumps(str(key))}: {self._value(value, (*path, str(key)))}" for key, value in entries.items()]
        return "{\n " + ",\n ".join(line.replace("\n", "\n ") for line in lines) + "\n}" if lines else "{}"

    def _value(self, value: Any, path: tuple[str, ...]) -> str:
        if path == ("inferred",) and isinstance(value, Mapping):
            return self._object(value, path)
        known = self._known.get(path)
        if known is None or known[0] is not value:
            known = self._known[path] = (value, dumps(value, indent=1))
        return known[1]


def read_manifest(root: Path) -> dict[str, Any]:
    """The manifest of the run in `root`; an error if it is missing, damaged, or newer than this version."""
    path = root / MANIFEST
    try:
        manifest = read_json(path)
    except FileNotFoundError:
        raise RunDirectoryError(
            f"{root} is not a run directory: it has no {MANIFEST}. Give the folder that steadyrun.record wrote."
        ) from None
    except (OSError, ValueError) as problem:
        raise RunDirectoryError(f"cannot read {path}: {problem}") from problem
    if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
        raise RunDirectoryError(f"{path} was not written by steadyrun: it has no schema number")
    if manifest["schema"] > SCHEMA:
        raise NewerSchemaError(
            f"{path} has schema {manifest['schema']}, but this version of steadyrun reads up to {SCHEMA}: "
            "upgrade with `pip install --upgrade steadyrun`"
        )
    return manifest
