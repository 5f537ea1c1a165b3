"""The heartbeats of a job's processes: a small file per rank, replaced every few seconds; and stacks of stalled steps.

A heartbeat is data: every field is checked, and a file that is damaged or far too large is reported and left out.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadyrun.records import Dropped
from steadyrun.store.jsonio import dumps, encoded, read_json

RUNNING, ENDED = "running", "ended"
PHASES = ("validation", "data", "forward", "backward", "update")
"""The phases of a step in their order; validation comes before the data of the next step."""

_FOLDER, _STACKS = "heartbeats", "stacks"
_NAME = re.compile(r"rank-(?P<rank>[0-9]{5,9})\.json")
_LARGEST = 64 * 2**10  # bytes of a heartbeat to read
_MOST = 100_000  # heartbeats to read
_MOST_WORLD = 10_000_000
_LARGEST_STACKS = 4 * 2**20  # bytes after which no more stacks are added
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Heartbeat:
    """The last sign of life of a rank. `now` and `step_began` are of its own clock, `changed` of the file system's."""

    rank: int
    world: int
    host: str
    pid: int
    step: int
    phase: str | None
    step_began: float
    now: float
    seconds_in_step: float
    state: str
    changed: float

    @property
    def ended(self) -> bool:
        return self.state == ENDED

    @property
    def progress(self) -> tuple[int, int]:
        """How far the rank has come: its step, and the phase within."""
        return self.step, PHASES.index(self.phase) if self.phase in PHASES else 1

    def in_phase(self, step: int | None, phase: object) -> Heartbeat:
        """The heartbeat as it was in an earlier step and phase."""
        known = phase if isinstance(phase, str) and phase in PHASES else None
        return replace(self, step=self.step if step is None else step, phase=known)


def heartbeat_file(root: Path, rank: int) -> Path:
    return root / _FOLDER / f"rank-{rank:05d}.json"


def stacks_file(root: Path, rank: int) -> Path:
    return root / _STACKS / f"rank-{rank:05d}.txt"


def write_heartbeat(root: Path, rank: int, content: Mapping[str, Any]) -> None:
    """Replace the heartbeat by rename. It need not survive a power failure, so nothing waits for the disk."""
    path = heartbeat_file(root, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(encoded(dumps(dict(content)) + "\n"))
    temporary.replace(path)


def open_stacks(root: Path, rank: int) -> Any | None:
    """The file for the stacks of a rank, opened to append; None if it is full."""
    path = stacks_file(root, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > _LARGEST_STACKS:
        return None
    return path.open("ab", buffering=0)


def read_heartbeats(root: Path) -> tuple[dict[int, Heartbeat], list[Dropped]]:
    """The last heartbeat of every rank, and the files that could not be read."""
    beats: dict[int, Heartbeat] = {}
    bad: list[Dropped] = []
    for path, rank in _files(root / _FOLDER):
        try:
            changed = path.stat().st_mtime
            beats[rank] = _parsed(read_json(path, _LARGEST), rank, changed)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError, OverflowError) as problem:
            why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            bad.append(Dropped(path.name, f"the heartbeat cannot be read ({why[:_LONGEST_TEXT]})", 1, "file"))
    return dict(sorted(beats.items())), bad


def _files(folder: Path) -> list[tuple[Path, int]]:
    found: list[tuple[Path, int]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False) and len(found) < _MOST:
                    found.append((Path(entry.path), int(match["rank"])))
    except OSError:
        return []
    return sorted(found)


def _parsed(content: Any, rank: int, changed: float) -> Heartbeat:
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    phase = content.get("phase")
    return Heartbeat(
        rank,
        _whole(content, "world", 1, _MOST_WORLD),
        str(content.get("host", ""))[:_LONGEST_TEXT],
        _whole(content, "pid", 0, 2**31),
        _whole(content, "step", -(2**53), 2**53),
        phase if phase in PHASES else None,
        _seconds(content, "step_began"),
        _seconds(content, "now"),
        max(0.0, _seconds(content, "seconds_in_step")),
        ENDED if content.get("state") == ENDED else RUNNING,
        changed,
    )


def _whole(content: dict[str, Any], name: str, least: int, most: int) -> int:
    value = content[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is not a valid number")
    return value


def _seconds(content: dict[str, Any], name: str) -> float:
    value = content[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) > 1e12:
        raise ValueError(f"{name} is not a valid number")
    return float(value)
