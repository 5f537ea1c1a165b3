"""The event log: one JSON object per line, appended and never rewritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from steadyrun.records import Dropped, Event
from steadyrun.store.jsonio import dumps, encoded

_OWN_KEYS = {"kind", "step", "time"}


class EventLog:
    """Appends events, opening the file for each: other clients of a network filesystem see it at once.

    A line is one write, so a killed process tears at most the last.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._path = path
        self._torn = _ends_torn(path)

    def write(self, kind: str, step: int | None, time: float, fields: dict[str, Any]) -> None:
        line = encoded(dumps({"kind": kind, "step": step, "time": time, **fields}) + "\n")
        data = b"\n" + line if self._torn else line
        self._torn = True
        with self._path.open("ab", buffering=0) as file:
            self._torn = file.write(data) != len(data)


def _ends_torn(path: Path) -> bool:
    """Whether an earlier writer was stopped in the middle of a line."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def read_events(path: Path, rank: int) -> tuple[list[Event], list[Dropped]]:
    """All readable events of one rank, and a note of the lines that are not."""
    events: list[Event] = []
    dropped: list[Dropped] = []
    data = path.read_bytes() if path.exists() else b""
    for place, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        if (event := parse_event(line, rank)) is None:
            dropped.append(Dropped(path.name, f"line {place} is not an event", len(line)))
        else:
            events.append(event)
    return events, dropped


def parse_event(line: bytes, rank: int) -> Event | None:
    """The event on a line, None where it is none."""
    try:
        found = json.loads(line)
        fields = {key: value for key, value in found.items() if key not in _OWN_KEYS}
        step = found["step"]
        return Event(str(found["kind"]), None if step is None else int(step), float(found["time"]), rank, fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
