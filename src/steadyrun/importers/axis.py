"""Which step a row belongs to: steps that go back, that start over in every epoch, that are missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.importers.model import Rows
from steadyrun.importers.roles import EPOCH, STEP, TIME
from steadyrun.importers.told import Told
from steadyrun.signals.smoothing import Floats

Steps = npt.NDArray[np.int64]

_MOST_ATTEMPTS = 60  # more resumes than this: the steps are in no order
_LARGEST = 2.0**53
_SECONDS, _MILLISECONDS = (1e8, 1e11), (1e11, 1e14)  # since 1970


@dataclass(frozen=True)
class Placed:
    """A part of the rows that belongs to one attempt: which rows, at which steps and times."""

    rows: npt.NDArray[np.int64]
    steps: Steps
    times: Floats
    resumes: bool  # the log went back before it


@dataclass
class Axis:
    """Gives every row a step, in the order of the log, pack by pack."""

    roles: dict[str, str]
    told: Told
    guide: str | None  # the series whose steps tell whether the log went back
    unit: str = "step"  # "epoch" where the log counts nothing else, "point" where it counts nothing
    attempts: int = 1
    _last: float = float("nan")  # the last raw step
    _epoch: float = float("nan")
    _seen: float = float("nan")  # the raw step of the last row that has the guide
    _gap: float = 1.0
    _offset: float = 0.0
    _points: int = -1
    _ends: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Any, roles: dict[str, str], told: Told) -> Axis:
        """The axis of a log with these names."""
        guide = next((roles[role] for role in ("loss", "val_loss", "lr", "grad_norm") if role in roles), None)
        unit = "step" if roles.get(STEP) in names else "epoch" if roles.get(EPOCH) in names else "point"
        return cls(roles, told, guide, unit)

    def place(self, rows: Rows) -> list[Placed]:
        """The rows with their steps, cut where the log goes back."""
        guided = self._has(rows, self.guide)
        raw = self._raw(rows, guided)
        usable = np.isfinite(raw) & (np.abs(raw) < _LARGEST)
        if not np.all(usable):
            self.told.odd("rows whose step is no usable number", "left out", count=int(np.sum(~usable)))
        steps = np.where(usable, raw, 0.0)
        cuts = self._cuts(rows, steps, np.flatnonzero(guided & usable))
        times = self._times(rows)
        placed: list[Placed] = []
        edges = [0, *(place for place, _, _ in cuts), rows.count]
        kinds = [(False, None), *((resumes, offset) for _, resumes, offset in cuts)]
        for start, end, (resumes, offset) in zip(edges[:-1], edges[1:], kinds, strict=True):
            self._offset = self._offset if offset is None else offset
            self.attempts += resumes
            where = np.arange(start, end)[usable[start:end]]
            if len(where):
                at = np.rint(steps[where] + self._offset).astype(np.int64)
                placed.append(Placed(where, at, times[where], resumes))
        return placed

    def _raw(self, rows: Rows, guided: npt.NDArray[np.bool_]) -> Floats:
        """The step of each row as the log says it; of a row without one that of the row before."""
        if self.unit == "point":
            counted = self._points + np.cumsum(guided)
            self._points = int(counted[-1]) if len(counted) else self._points
            return np.maximum(counted, 0).astype(float)
        found = _floats(rows, self.roles[STEP if self.unit == "step" else EPOCH])
        if found is None:
            found = np.full(rows.count, np.nan)
            there = np.zeros(rows.count, bool)
        else:
            there = _present(rows, self.roles[STEP if self.unit == "step" else EPOCH])
        if not np.all(there):
            self.told.odd("rows without a step", "placed at the step before them", count=int(np.sum(~there)))
        index: npt.NDArray[np.int64] = np.maximum.accumulate(np.where(there, np.arange(rows.count), -1))
        first = found[there][0] if np.any(there) else np.nan
        carried = self._last if np.isfinite(self._last) else first if np.isfinite(first) else 0.0
        filled: Floats = np.where(index >= 0, found[np.maximum(index, 0)], carried)
        self._last = float(filled[-1]) if len(filled) else self._last
        return filled

    def _cuts(self, rows: Rows, steps: Floats, guides: npt.NDArray[np.int64]) -> list[tuple[int, bool, float | None]]:
        """Where the log goes back: the row, whether it is a resume, the new offset where steps are counted on."""
        if not len(guides):
            return []
        along = np.concatenate([[self._seen], steps[guides]])
        epochs = np.concatenate([[self._epoch], self._epochs(rows)[guides]])
        cuts: list[tuple[int, bool, float | None]] = []
        offset, resumes = self._offset, 0
        repeated = int(np.sum(along[1:] == along[:-1]))
        if repeated:
            self.told.odd(
                "points at the step of the point before them", "both kept, the later one counts", count=repeated
            )
        for place in np.flatnonzero(along[1:] < along[:-1]).tolist():
            before, now = along[place], along[place + 1]
            after = along[place + 2] if place + 2 < len(along) else None
            row = _first_back(steps, int(guides[place - 1]) + 1 if place else 0, int(guides[place]), before)
            if epochs[place + 1] > epochs[place]:
                offset += before + self._gap_of(along, place) - (0 if now > 0 else now)
                cuts.append((row, False, offset))
                self.told.odd("epochs whose steps start over", "steps counted on from the epoch before")
            elif (after is None or after <= before) and self.attempts + resumes < _MOST_ATTEMPTS:
                resumes += 1
                cuts.append((row, True, None))
                self.told.odd(
                    "times the steps go back",
                    "kept as a resume, the later points count",
                    f"step {now:g} after {before:g}",
                )
            else:
                self.told.odd("points out of order", "sorted by step", f"step {now:g} after {before:g}")
        self._seen, self._epoch = float(along[-1]), float(epochs[-1])
        return cuts

    def _gap_of(self, along: Floats, place: int) -> float:
        """Steps between two points before a place: what an epoch that starts over goes on with."""
        gaps = np.diff(along[max(0, place - 20) : place + 1])
        gaps = gaps[np.isfinite(gaps) & (gaps > 0)]
        self._gap = float(np.median(gaps)) if len(gaps) else self._gap
        return self._gap

    def _epochs(self, rows: Rows) -> Floats:
        found = _floats(rows, self.roles[EPOCH]) if EPOCH in self.roles and self.unit == "step" else None
        return np.full(rows.count, np.nan) if found is None else found

    def _times(self, rows: Rows) -> Floats:
        found = _floats(rows, self.roles[TIME]) if TIME in self.roles else None
        if found is None:
            return np.full(rows.count, np.nan)
        seconds = np.where((found > _MILLISECONDS[0]) & (found < _MILLISECONDS[1]), found / 1000, found)
        return np.where((seconds > _SECONDS[0]) & (seconds < _SECONDS[1]), seconds, np.nan)

    def _has(self, rows: Rows, name: str | None) -> npt.NDArray[np.bool_]:
        return np.zeros(rows.count, bool) if name is None or name not in rows.columns else _present(rows, name)


def _first_back(steps: Floats, start: int, end: int, before: float) -> int:
    """The first row after the last guide whose step went back, too: a validation printed before its step."""
    back = np.flatnonzero(steps[start:end] < before)
    return start + int(back[0]) if len(back) else end


def _present(rows: Rows, name: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = rows.columns[name].is_valid().to_numpy(zero_copy_only=False)
    return found


def _floats(rows: Rows, name: str) -> Floats | None:
    """A column as floats, NaN where it is missing; None where the rows do not have it."""
    found = rows.columns.get(name)
    return None if found is None else found.to_numpy(zero_copy_only=False).astype(float, copy=False)
