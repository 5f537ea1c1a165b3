"""The event log: one JSON object per line, append-only.

The last field of a line, `crc`, is the CRC-32 of the bytes before it, which detects a flipped digit. A line without
it (of an older version, or rewritten by another tool) is read unchecked.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.records import Dropped, Event
from steadyrun.store.jsonio import dumps, encoded, loads, number, regular_size

_OWN_KEYS = {"kind", "step", "time", "crc"}
_SEAL = re.compile(rb', "crc": "([0-9a-f]{8})"}\s*')
_SEAL_SIZE = len(', "crc": "00000000"}')
_MOST = 1_000_000  # events of one rank
_LARGEST = 128 * 2**20  # bytes of a log to read
_NAMED = 20  # damaged lines to report one by one
_PIECE = 2**20  # bytes read at a time


class EventLog:
    """Appends events, opening the file for each, so that other clients of a network filesystem see them immediately.

    A line is one write, so a killed process truncates at most the last. There is no file before the first event: an
    empty file has lost its content.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._torn = _ends_torn(path)
        self._begun = path.exists()
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PermissionError(f"{path} is not writable")

    def write(self, kind: str, step: int | None, time: float, fields: dict[str, Any]) -> None:
        line = sealed(encoded(dumps({"kind": kind, "step": step, "time": time, **fields}))) + b"\n"
        data = b"\n" + line if self._torn else line
        self._torn = True
        with self._path.open("ab", buffering=0) as file:
            self._begun = True
            self._torn = file.write(data) != len(data)

    @property
    def deleted(self) -> bool:
        """Whether the file was written and has disappeared."""
        return self._begun and not self._path.exists()


def _ends_torn(path: Path) -> bool:
    """Whether an earlier writer stopped within a line."""
    if not path.exists() or regular_size(path) == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def sealed(line: bytes) -> bytes:
    """A JSON object with its checksum as the last field."""
    head = line[:-1]
    return head + f', "crc": "{zlib.crc32(head):08x}"}}'.encode()


def read_events(path: Path, rank: int) -> tuple[list[Event], list[Dropped]]:
    """All readable events of one rank, and the damage of the other lines."""
    try:
        return _read(path, regular_size(path), rank)
    except FileNotFoundError:
        return [], []
    except OSError as problem:
        return [], [Dropped(path.name, f"it cannot be read ({problem.strerror or problem})", 1, "file")]


def _read(path: Path, size: int, rank: int) -> tuple[list[Event], list[Dropped]]:
    events: list[Event] = []
    bad: list[Dropped] = []
    end = 0
    for line_number, start, line in _lines(path, min(size, _LARGEST)):
        if len(events) == _MOST:
            break
        end = start + len(line)
        if line.isspace():
            continue
        if (event := parse_event(line, rank)) is not None:
            events.append(event)
        else:
            bad.append(Dropped(path.name, f"line {line_number} {_why_not(line)}", len(line.rstrip(b"\n"))))
    if end < size:
        bad.append(Dropped(path.name, "the log is larger than steadyrun reads", size - end))
    return events, _folded(bad)


def _lines(path: Path, size: int) -> Iterator[tuple[int, int, bytes]]:
    """The number, offset and bytes of every line that begins within the first `size` bytes."""
    line_number = start = 0
    with path.open("rb", buffering=_PIECE) as file:
        while line := file.readline(size - start):
            line_number += 1
            yield line_number, start, line
            start += len(line)


def _folded(bad: list[Dropped]) -> list[Dropped]:
    """The first reports, and the others summed up in one."""
    rest = bad[_NAMED:]
    if len(rest) < 2:
        return bad
    more = f"{len(rest):,} more lines are damaged or not events"
    return [*bad[:_NAMED], Dropped(bad[0].file, more, sum(dropped.size for dropped in rest))]


def parse_event(line: bytes, rank: int) -> Event | None:
    """The event of a line; None if it is damaged or not a valid event."""
    if not line[:64].lstrip().startswith(b"{") or _is_damaged(line):
        return None
    try:
        entry = loads(line)
        kind, step, time = entry["kind"], entry["step"], number(entry["time"])
        fields = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
        good = isinstance(kind, str) and _is_step(step) and not math.isinf(time) and _fits(kind, fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Event(kind, None if step is None else int(step), time, rank, fields) if good else None


def _why_not(line: bytes) -> str:
    return "is damaged: its checksum does not match" if _is_damaged(line) else "is not an event"


def _is_damaged(line: bytes) -> bool:
    """Whether the checksum of a line does not match."""
    body = line.rstrip()
    seal = _SEAL.fullmatch(body, max(0, len(body) - _SEAL_SIZE))
    return seal is not None and f"{zlib.crc32(body[: seal.start()]):08x}".encode() != seal[1]


def _is_step(step: Any) -> bool:
    """Whether a value is a step that fits into int64; some JSON writers give 7 as 7.0."""
    if step is None:
        return True
    known = isinstance(step, int | float) and not isinstance(step, bool)
    return known and -(2**63) <= step < 2**63 and step == int(step)


def _fits(kind: str, fields: dict[str, Any]) -> bool:
    """Whether the fields that series depend on are valid."""
    if kind in {"start", "resume"}:
        attempt = fields.get("attempt", 1)
        return isinstance(attempt, int) and not isinstance(attempt, bool)
    if kind == "validation":
        return all(isinstance(number(value), float) for value in fields.get("values", {}).values())
    return True
