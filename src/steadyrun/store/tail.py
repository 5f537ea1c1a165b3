"""A run that is being written, read again and again: what was read is kept, and each look reads only what is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from steadyrun.records import Dropped
from steadyrun.store.columns import ColumnPoints, DataFile, SharedAxes, read_on
from steadyrun.store.layout import MANIFEST, events_file, metrics_folder
from steadyrun.store.reader import RunReader

Fingerprint = Mapping[Path, tuple[int, int]]


def fingerprint(root: Path) -> Fingerprint:
    """What changes when rank 0 or a replay writes: its files, their sizes and their times."""
    folder = metrics_folder(root, 0)
    sizes = {}
    incidents = (root / "incidents").glob("step-*/*.json")  # a replay writes there when the run is long over
    for path in [*(folder.iterdir() if folder.is_dir() else []), events_file(root, 0), root / MANIFEST, *incidents]:
        try:
            status = path.stat()
        except OSError:  # not there yet, or just compacted away
            continue
        sizes[path] = (status.st_size, status.st_mtime_ns)
    return sizes


@dataclass
class _Part:
    """What was read of one column of one file, up to which place, and what could not be read."""

    points: ColumnPoints
    position: int
    size: int
    dropped: list[Dropped] = field(default_factory=list)


class TailView(RunReader):
    """Like `open_run`, for one who looks often. All reads between two looks see the same files and events."""

    def __init__(self, root: Path) -> None:
        self._parts: dict[tuple[Path, str], _Part] = {}
        self._sizes: Fingerprint = {}
        self._standing: tuple[Fingerprint, str] | None = None
        super().__init__(root)
        self._kept, self._axes = {}, SharedAxes()

    def look(self) -> bool:
        """Take notice of what is there now; whether anything has changed since the last look."""
        standing = fingerprint(self.root), self.state
        if standing == self._standing:
            return False
        self._standing, self._sizes = standing, standing[0]
        self._kept, self._axes, self._dropped = {}, SharedAxes(), {}
        self._parts = {key: part for key, part in self._parts.items() if key[0] in self._sizes}
        return True

    def _read_points(self, file: DataFile, name: str, dropped: list[Dropped]) -> ColumnPoints:
        size = self._sizes.get(file.path, (-1, 0))[0]
        part = self._parts.get((file.path, name))
        if part is None or part.size != size:
            part = self._parts[file.path, name] = self._read_on(file, name, part, size)
        dropped += part.dropped
        return part.points

    def _read_on(self, file: DataFile, name: str, part: _Part | None, size: int) -> _Part:
        """Read what is new; a file in which something is damaged, or a last batch half written, is read whole."""
        start = part.position if part is not None and not part.dropped else 0
        dropped: list[Dropped] = []
        points, position = read_on(file, name, dropped, start, self._axes)
        if part is not None and start:
            points = _joined(part.points, points)
        return _Part(self._sharing(file.path, points), position, size, dropped)

    def _sharing(self, path: Path, points: ColumnPoints) -> ColumnPoints:
        """The points; where another column of the file has the same steps, with its arrays: half of the memory."""
        for (other, _), part in self._parts.items():
            known = part.points
            if other == path and len(known.steps) == len(points.steps) and np.array_equal(known.steps, points.steps):
                return ColumnPoints(points.attempt, known.steps, points.values, known.times)
        return points


def _joined(old: ColumnPoints, new: ColumnPoints) -> ColumnPoints:
    if not len(new.steps):
        return old
    return ColumnPoints(
        old.attempt,
        np.concatenate([old.steps, new.steps]),
        np.concatenate([old.values, new.values]),
        np.concatenate([old.times, new.times]),
    )
