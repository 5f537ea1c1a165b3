"""Processes that write to one log by turns: which rows are whose.

Each of them counts upwards, far away from the others. If the log goes back again and again, and its rows fall apart
into a few that never go back, these are the processes. Ranks of one training count the same steps, and stay together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from steadyrun.importers.log_rows import Anomalies, LogRows
from steadyrun.importers.row_marks import floats, guided
from steadyrun.importers.series_roles import EPOCH, STEP
from steadyrun.importers.step_axis import Axis
from steadyrun.signals.curves import Floats

_MOST = 4  # processes; with more of them the rows are in no order
_TURNS = 0.1  # of the points come after one that is further: runs one after the other go back once each
_FEWEST = 20  # points of each process
_APART = 10  # steps of logging between processes: those that lie closer are ranks of one training


@dataclass
class Processes:
    """Gives every row to a process; all of them to one if the log does not show several."""

    axis: Axis | None = None
    length: float = 0.0  # of an epoch whose steps start over
    last: list[float] = field(default_factory=list)  # the count of each process
    _current: int = 0

    @classmethod
    def of(cls, packs: list[LogRows], axis: Axis, anomalies: Anomalies) -> Processes:
        """The processes of a log that begins with these rows."""
        if axis.unit == "point" or axis.roles.get(STEP) is None:
            return cls()
        steps = np.concatenate([floats(rows, axis.roles[STEP])[guided(rows, axis.guides)] for rows in packs])
        found = cls(axis, float(np.nanmax(steps, initial=0.0)) + 1.0)
        counts = np.concatenate([found._counts(rows)[guided(rows, axis.guides)] for rows in packs])
        counts = counts[np.isfinite(counts)]
        back = int(np.sum(counts[1:] < counts[:-1]))
        if back < max(_TURNS * len(counts), _FEWEST) or not found._fall_apart(counts.tolist()):
            return cls()
        done = f"read as {len(found.last)} runs, by counts that never go back"
        anomalies.note(f"{len(found.last)} processes wrote by turns", done)
        found.last, found._current = [-np.inf] * len(found.last), 0
        return found

    def _fall_apart(self, counts: list[float]) -> bool:
        """Whether a few processes explain all counts, each with many of them, and far from each other."""
        sizes: list[int] = []
        nearest, gaps = np.inf, []
        for count in counts:
            index = self._whose(count)
            if index is None:
                if len(self.last) == _MOST:
                    return False
                self.last.append(count)
                sizes.append(1)
                continue
            gaps.append(count - self.last[index])
            self.last[index] = count
            sizes[index] += 1
            ordered = sorted(self.last)
            nearest = min([nearest, *(b - a for a, b in pairwise(ordered))])
        return len(sizes) > 1 and min(sizes) >= _FEWEST and nearest > _APART * float(np.median(gaps))

    def _whose(self, count: float) -> int | None:
        """The process that came nearest to a count without going past it."""
        behind = [index for index, last in enumerate(self.last) if last < count]
        return max(behind, key=self.last.__getitem__, default=None)

    def apart(self, packs: list[LogRows]) -> list[list[LogRows]]:
        """The same rows, those of each process in packs of their own."""
        if len(self.last) < 2:
            return [packs]
        parts: list[list[LogRows]] = [[] for _ in self.last]
        for rows in packs:
            owners = self._owners(rows)
            for index, part in enumerate(parts):
                mine = owners == index
                columns = {name: column.filter(pa.array(mine)) for name, column in rows.columns.items()}
                if np.any(mine):
                    part.append(LogRows(int(np.sum(mine)), columns))
        return parts

    def _owners(self, rows: LogRows) -> Floats:
        """The process of each row; a row without a count belongs to that of the row before it."""
        assert self.axis is not None
        owners = np.zeros(rows.count)
        points = guided(rows, self.axis.guides)
        for row, (count, point) in enumerate(zip(self._counts(rows).tolist(), points.tolist(), strict=True)):
            if point and np.isfinite(count):
                index = self._whose(count)
                index = int(np.argmin(self.last)) if index is None else index  # the hindmost goes back
                self._current, self.last[index] = index, count
            owners[row] = self._current
        return owners

    def _counts(self, rows: LogRows) -> Floats:
        """Steps, counted through the epochs if the log has them."""
        assert self.axis is not None
        steps, epochs = floats(rows, self.axis.roles[STEP]), floats(rows, self.axis.roles.get(EPOCH))
        with np.errstate(over="ignore", invalid="ignore"):  # infinite counts belong to no process
            return np.where(np.isfinite(epochs), epochs * self.length + steps, steps)
