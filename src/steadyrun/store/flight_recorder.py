"""Traces of torch's Flight Recorder: the last collectives that each rank has started, as JSON.

Pickles are never loaded. A file that is damaged or of another form is reported in one line and left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrun.records import Dropped
from steadyrun.store.jsonio import dumps, encoded, loads, read_json, regular_size

FOLDER = "flight-recorder"
_RANK = re.compile(r"(?P<rank>[0-9]{1,9})(\.json)?")
_PICKLE = b"\x80"  # the first byte of a binary pickle
_ZIP = b"PK"
_KEPT = 50  # last collectives of a process group
_MOST_FILES = 20_000
_LONGEST = 200
_LARGEST = 16 * 2**20  # bytes of a trace; the recorder keeps 2,000 collectives in about 1 MB
_USED = ("collective_seq_id", "profiling_name", "state", "process_group", "input_sizes", "is_p2p", "time_created_ns")


@dataclass(frozen=True)
class Collective:
    """A collective of one rank: its number in its process group, its name and the sizes of its inputs."""

    number: int
    name: str
    sizes: str
    completed: bool


@dataclass(frozen=True)
class Trace:
    """The last collectives of one rank by process group, in the order of their numbers."""

    rank: int
    groups: dict[str, tuple[Collective, ...]]
    members: dict[str, tuple[int, ...]]  # the ranks of a process group, if the trace names them


def keep_trace(root: Path, rank: int, data: bytes | None) -> None:
    """Keep the end of a trace that torch gave as JSON in the run directory; replaced by rename."""
    content = None if data is None else loads(data)
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        return
    entries = [{key: entry[key] for key in _USED if key in entry} for entry in content["entries"][-_KEPT:]]
    kept = {key: content[key] for key in ("version", "pg_config") if key in content} | {"entries": entries}
    path = root / FOLDER / f"rank-{rank:05d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(encoded(dumps(kept) + "\n"))
    temporary.replace(path)


def read_traces(folder: Path) -> tuple[dict[int, Trace], list[Dropped]]:
    """The traces of a folder by rank, and the files that could not be read."""
    traces: dict[int, Trace] = {}
    bad: list[Dropped] = []
    for path, rank in _files(folder):
        try:
            traces[rank] = _trace(path, rank)
        except (OSError, ValueError, TypeError, KeyError, OverflowError) as problem:
            why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            bad.append(Dropped(path.name, f"it is not a Flight Recorder trace in JSON ({why[:_LONGEST]})", 1, "file"))
    return traces, bad


def _files(folder: Path) -> list[tuple[Path, int]]:
    """The files whose names end in the number of a rank, such as nccl_trace_rank_3 or rank-00003.json."""
    found: list[tuple[Path, int]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = _at_end(entry.name)
                if match and entry.is_file(follow_symlinks=False) and len(found) < _MOST_FILES:
                    found.append((Path(entry.path), int(match["rank"])))
    except OSError:
        return []
    return sorted(found)


def _at_end(name: str) -> re.Match[str] | None:
    """The number at the end of a name."""
    stem = name.removesuffix(".json")
    digits = stem[len(stem.rstrip("0123456789")) :]
    return _RANK.fullmatch(digits)


def _trace(path: Path, rank: int) -> Trace:
    _refuse_pickles(path)
    content = read_json(path, _LARGEST)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    entries = content.get("entries", [])
    if not isinstance(entries, list):
        raise ValueError("its entries are not a list")
    groups: dict[str, dict[int, Collective]] = {}
    for name, collective in _collectives(entries):
        groups.setdefault(name, {})[collective.number] = collective
    kept = {name: tuple(by[number] for number in sorted(by)[-_KEPT:]) for name, by in groups.items()}
    return Trace(rank, kept, _members(content.get("pg_config"), kept))


def _refuse_pickles(path: Path) -> None:
    regular_size(path)  # a pipe would block
    with path.open("rb") as file:
        start = file.read(2)
    if start.startswith((_PICKLE, _ZIP)):
        raise ValueError(
            "it is a pickle, which steadyrun never loads; let the program write "
            "torch._C._distributed_c10d._dump_nccl_trace_json() instead"
        )


def _collectives(entries: list[Any]) -> Iterator[tuple[str, Collective]]:
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError("an entry is not a JSON object")
        number, name, group = (entry.get(key) for key in ("collective_seq_id", "profiling_name", "process_group"))
        if isinstance(number, bool) or not isinstance(number, int) or not isinstance(name, str):
            raise ValueError("an entry has no valid collective_seq_id or profiling_name")
        if entry.get("is_p2p") is True:  # between two ranks: it has numbers of its own
            continue
        sizes = json.dumps(entry.get("input_sizes", []))[:_LONGEST]
        yield _group_name(group), Collective(number, name[:_LONGEST], sizes, entry.get("state") == "completed")


def _group_name(group: Any) -> str:
    if not isinstance(group, list) or not group or not all(isinstance(part, str) for part in group):
        raise ValueError("an entry has no valid process_group")
    return ":".join(part[:_LONGEST] for part in group[:2])


def _members(config: Any, groups: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ranks of each group, as far as the trace's configuration names them."""
    members = {}
    for name in groups if isinstance(config, dict) else ():
        listed = config.get(name.partition(":")[0])
        listed = listed.get("ranks") if isinstance(listed, dict) else None
        if isinstance(listed, str) and re.fullmatch(r"\[[0-9, ]{1,200000}\]", listed):
            members[name] = tuple(int(rank) for rank in re.findall(r"[0-9]{1,9}", listed))
    return members
