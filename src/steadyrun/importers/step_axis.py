"""Which step a row belongs to: steps that go back, that start over in every epoch, that are missing.

Only the rows that have the *guide*, the loss where there is one, tell whether a log goes back: what a validation or a
summary says of steps is often about something else. A row without a step belongs to the step of the row before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from steadyrun.importers.log_rows import Anomalies, LogRows
from steadyrun.importers.series_roles import EPOCH, STEP, TIME
from steadyrun.signals.curves import Floats

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MOST_ATTEMPTS = 60  # more resumes than this: the steps are in no order
LARGEST = 2.0**53
_SECONDS, _MILLISECONDS = (1e8, 1e11), (1e11, 1e14)  # since 1970


@dataclass(frozen=True)
class Placed:
    """A part of the rows that belongs to one attempt: which rows, at which steps and times."""

    rows: Integers
    steps: Integers
    times: Floats
    resumes: bool  # the log went back before it


@dataclass(frozen=True)
class _Cut:
    """A place where the log goes back: the first row after it, and whether that is a resume; else steps count on."""

    row: int
    resumes: bool
    offset: float


@dataclass
class Axis:
    """Gives every row a step, in the order of the log, pack by pack."""

    roles: dict[str, str]
    anomalies: Anomalies
    guide: str | None  # the series whose rows tell whether the log went back
    unit: str = "step"  # "epoch" where the log counts nothing else, "point" where it counts nothing usable
    attempts: int = 1
    _carried: float = float("nan")  # the count of the last row
    _count: float = float("nan")  # that of the last row with the guide
    _epoch: float = float("nan")
    _gap: float = 1.0
    _offset: float = 0.0
    _points: list[float] = field(default_factory=list)  # the count of each point, where points are the steps

    @classmethod
    def of(cls, ahead: Iterable[LogRows], roles: dict[str, str], anomalies: Anomalies) -> Axis:
        """The axis of a log that begins with these rows."""
        packs = list(ahead)
        names = {name for rows in packs for name in rows.columns}
        guide = next(
            (roles[role] for role in ("loss", "val_loss", "lr", "grad_norm") if roles.get(role) in names), None
        )
        if roles.get(STEP) in names:
            return cls(roles, anomalies, guide, "step")
        whole = roles.get(EPOCH) in names and _once_each(packs, roles[EPOCH], guide)
        return cls(roles, anomalies, guide, "epoch" if whole else "point")

    def place(self, rows: LogRows) -> list[Placed]:
        """The rows with their steps, cut where the log goes back."""
        counts = self._counts(rows)
        usable = np.isfinite(counts) & (np.abs(counts) < LARGEST)
        if not np.all(usable):
            self.anomalies.note("rows whose step is no usable number", "left out", count=int(np.sum(~usable)))
        guides = np.flatnonzero(_present(rows, self.guide) & usable)
        cuts = self._cuts(np.where(usable, counts, 0.0), _floats(rows, self._epochs_name()), guides)
        if self.unit == "point":
            return self._by_points(rows, counts, usable, guides, cuts)
        steps = self._steps(counts, usable, cuts)
        times = self._times(rows)
        resumes = [cut.row for cut in cuts if cut.resumes]
        self.attempts += len(resumes)
        placed: list[Placed] = []
        for start, end in pairwise([0, *resumes, rows.count]):
            placed += self._part(start, end, steps, times, usable, start in resumes)
        return placed

    def _steps(self, counts: Floats, usable: Flags, cuts: list[_Cut]) -> Integers:
        """What the log counts, with all the steps before an epoch that starts over."""
        lengths = np.diff([0, *(cut.row for cut in cuts), len(counts)])
        offsets = np.repeat([self._offset, *(cut.offset for cut in cuts)], lengths)
        self._offset = cuts[-1].offset if cuts else self._offset
        return np.rint(np.where(usable, counts + offsets, 0.0)).astype(np.int64)

    def _by_points(
        self, rows: LogRows, counts: Floats, usable: Flags, guides: Integers, cuts: list[_Cut]
    ) -> list[Placed]:
        """Every row with the guide is a step; after a resume, counting goes on where the log went back to."""
        times, at = self._times(rows), np.zeros(rows.count, np.int64)
        guided = np.zeros(rows.count, bool)
        guided[guides] = True
        resumes = {cut.row for cut in cuts if cut.resumes}
        placed: list[Placed] = []
        start = 0
        for row in range(rows.count):
            if row in resumes:
                placed += self._part(start, row, at, times, usable, start in resumes)
                del self._points[bisect_left(self._points, counts[row]) :]
                self.attempts, start = self.attempts + 1, row
            if guided[row]:
                self._points.append(counts[row])
            at[row] = max(len(self._points) - 1, 0)
        return placed + self._part(start, rows.count, at, times, usable, start in resumes)

    def _part(self, start: int, end: int, at: Integers, times: Floats, usable: Flags, resumes: bool) -> list[Placed]:
        where = np.arange(start, end)[usable[start:end]]
        return [Placed(where, at[where], times[where], resumes)] if len(where) else []

    def _counts(self, rows: LogRows) -> Floats:
        """What the log counts, for each row; of a row that says nothing that of the row before."""
        name = self.roles.get(STEP if self.unit == "step" else EPOCH)
        if name is None:
            return np.zeros(rows.count)
        there = _present(rows, name)
        if not np.all(there) and self.unit != "point":
            self.anomalies.note("rows without a step", "placed at the step before them", count=int(np.sum(~there)))
        column = _floats(rows, name)
        before = self._carried
        if np.isnan(before):
            before = column[there][0] if np.any(there) else 0.0
        last = np.maximum.accumulate(np.where(there, np.arange(rows.count), -1))
        counts: Floats = np.where(last >= 0, column[np.maximum(last, 0)], before)
        self._carried = float(counts[-1]) if rows.count else before
        return counts

    def _cuts(self, counts: Floats, epochs: Floats, guides: Integers) -> list[_Cut]:
        """Where the log goes back, by the rows that have the guide."""
        if not len(guides):
            return []
        along = np.concatenate([[self._count], counts[guides]])
        grown = np.diff(np.concatenate([[self._epoch], epochs[guides]])) > 0
        cuts: list[_Cut] = []
        gaps = self._gaps(along)
        offset, resumes = self._offset, 0
        for index in np.flatnonzero(along[1:] < along[:-1]).tolist():
            before, now = along[index], along[index + 1]
            ahead = along[index + 2] if index + 2 < len(along) else -np.inf
            row = _first_back(counts, int(guides[index - 1]) + 1 if index else 0, int(guides[index]), before)
            if grown[index]:
                offset += before if now > 0 else before + gaps[index] - now
                cuts.append(_Cut(row, False, offset))
                self.anomalies.note("epochs whose steps start over", "steps counted on from the epoch before")
            elif ahead <= before and self.attempts + resumes < MOST_ATTEMPTS:
                resumes += 1
                cuts.append(_Cut(row, True, offset))
                where = f"{now:g} after {before:g}"
                self.anomalies.note("times the steps go back", "kept as a resume, the later points count", where)
            else:
                self.anomalies.note("points out of order", "sorted by step", f"{now:g} after {before:g}")
        self._gap = float(gaps[-1])
        self._count, self._epoch = float(along[-1]), float(epochs[guides][-1])
        return cuts

    def _gaps(self, along: Floats) -> Floats:
        """At each place the last step forward up to it: what an epoch that starts over at zero goes on with."""
        gaps = np.diff(along, prepend=np.nan)
        last = np.maximum.accumulate(np.where(gaps > 0, np.arange(len(gaps)), -1))
        last_gaps: Floats = np.where(last >= 0, gaps[np.maximum(last, 0)], self._gap)
        return last_gaps

    def _epochs_name(self) -> str | None:
        return self.roles.get(EPOCH) if self.unit == "step" else None

    def _times(self, rows: LogRows) -> Floats:
        times = _floats(rows, self.roles.get(TIME))
        seconds = np.where((times > _MILLISECONDS[0]) & (times < _MILLISECONDS[1]), times / 1000, times)
        return np.where((seconds > _SECONDS[0]) & (seconds < _SECONDS[1]), seconds, np.nan)


def _once_each(packs: list[LogRows], name: str, guide: str | None) -> bool:
    """Whether epochs are whole and each has one point, so that they can stand for steps."""
    epochs = np.concatenate([_floats(rows, name)[_present(rows, guide)] for rows in packs])
    epochs = epochs[np.isfinite(epochs)]
    return bool(np.all(epochs == np.rint(epochs))) and not np.any(epochs[1:] == epochs[:-1])


def _first_back(counts: Floats, start: int, end: int, before: float) -> int:
    """The first row after the last guide whose count went back, too: a validation printed before its step."""
    back = np.flatnonzero(counts[start:end] < before)
    return start + int(back[0]) if len(back) else end


def _present(rows: LogRows, name: str | None) -> Flags:
    if name is None or name not in rows.columns:
        return np.zeros(rows.count, bool)
    present: Flags = rows.columns[name].is_valid().to_numpy(zero_copy_only=False)
    return present


def _floats(rows: LogRows, name: str | None) -> Floats:
    """A column as floats, NaN where it is missing."""
    if name is None or name not in rows.columns:
        return np.full(rows.count, np.nan)
    values: Floats = rows.columns[name].to_numpy(zero_copy_only=False).astype(float, copy=False)
    return values
