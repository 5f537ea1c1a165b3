"""TensorBoard: event files through its own reader, all points; a folder with event files is one run.

Some folders belong together: `tensorboard_folders.py` says which, and how their series are called then.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.formats.tensorboard_events import Events, Point
from steadyrun.importers.formats.tensorboard_folders import Source, counts_epochs, sources, take
from steadyrun.importers.model import Format, Log, Look, Row, packed
from steadyrun.importers.told import Told

_STEP, _TIME, _EPOCH = "step", "wall_time", "epoch"
_OWN = frozenset((_STEP, _TIME))


def _detect(look: Look) -> bool:
    return "tfevents" in look.name or b"brain.Event:" in look.head[:64]


def _read(path: Path, key: str, told: Told) -> Log:
    found = sources(path, key)
    if not found:
        raise LogError(f"{path} has no event file in it")
    by_epochs = counts_epochs(found, key)
    log = Log(iter(()), kind="mean of an epoch" if by_epochs else "")
    log.roles = {"time": _TIME} if by_epochs else {"step": _STEP, "time": _TIME}
    events = [Events(source.path, told, log.config) for source in found]
    points = [_named(each.points(), source) for each, source in zip(events, found, strict=True)]
    log.rows = packed(_checked(path, events, points, _EPOCH if by_epochs else _STEP))
    return log


def _checked(path: Path, events: list[Events], points: list[Iterator[Point]], axis: str) -> Iterator[Row]:
    """Rows of all files by time; an error where nothing at all could be read."""
    found = False
    merged = points[0] if len(points) == 1 else heapq.merge(*points, key=lambda point: point[0])
    for row in rows_of(merged, axis):
        found = True
        yield row
    for each in events:
        each.tell()
    if found:
        return
    first = events[0]
    if not any(each.records for each in events):
        raise LogError(f"{first.path}, byte 0: no record of an event file can be read here; it is damaged or cut off")
    lost = next((each for each in events if each.lost), None)
    where = f"; {lost.path.name} is damaged or cut off at byte {lost.at:,}" if lost else ""
    raise LogError(f"{path} has no scalars in it{where}")


def _named(points: Iterator[Point], source: Source) -> Iterator[Point]:
    """Points under the names of the run; None for the step where it counts something else."""
    names: dict[str, tuple[str, bool]] = {}
    for time, step, tag, value in points:
        if tag not in names:
            found = source.name(tag)
            names[tag] = ("", False) if found is None else _beside_the_axis(*found)
        name, counts = names[tag]
        if name:
            yield time, step if counts else None, name, value


def _beside_the_axis(name: str, counts: bool) -> tuple[str, bool]:
    """A series that is itself called `step` does not become the step."""
    return f"logged/{name}" if name in _OWN or not name else name, counts


def rows_of(points: Iterator[Point], axis: str = _STEP) -> Iterator[Row]:
    """Neighbouring points with the same step are one row; of the same name twice, two."""
    row: dict[str, float] = {}
    at: int | None = None
    for time, step, tag, value in points:
        if step != at or tag in row or not row:
            if row:
                yield row
            at = step
            row = {_TIME: time, tag: value} if step is None else {axis: step, _TIME: time, tag: value}
        else:
            row[tag] = value
    if row:
        yield row


FORMAT = Format("tensorboard", "TensorBoard event files", _detect, _read, extra="tensorboard", take=take)
