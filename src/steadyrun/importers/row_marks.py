"""Which rows are the points of a run, and what stands above them: the series to go by, folds, seeds and starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from steadyrun.importers.log_rows import LogRows
from steadyrun.importers.series_roles import (
    EPOCH,
    HIDDEN,
    RUN_COUNT,
    RUN_COUNTERS,
    STARTS,
    STEP,
    TIME,
    rank,
    spellings,
)
from steadyrun.signals.curves import Floats

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_FEWEST = 5  # points of a loss that a stretch of the log has instead of another: fewer are a summary
_EACH = 0.5  # of the points: what changes at this many of them describes a point, and not a run


def guide_series(packs: list[LogRows], names: list[str], roles: Mapping[str, str]) -> tuple[str, ...]:
    """The series whose rows are the points of the run: the loss, or else what the log has most of.

    A log of several trainings may call the loss otherwise in another stretch: that counts there.
    """
    known = (roles[role] for role in ("loss", "val_loss", "lr", "grad_norm") if roles.get(role) in names)
    rest = [name for name in names if name not in {roles.get(role) for role in (STEP, EPOCH, TIME)} | HIDDEN]
    counts = {name: sum(int(present(rows, name).sum()) for rows in packs) for name in rest}
    guide = next(known, None) or max(rest, key=counts.__getitem__, default=None)
    if guide is None or guide != roles.get("loss"):
        return () if guide is None else (guide,)
    losses = [name for name in rest if name != guide and rank("loss", name) is not None]
    chosen, spans = [guide], [_span(packs, guide)]
    for name in sorted(losses, key=lambda name: -counts[name]):
        first, last = _span(packs, name)
        if counts[name] >= _FEWEST and all(last < start or first > end for start, end in spans):
            chosen.append(name)
            spans.append((first, last))
    return tuple(chosen)


def _span(packs: list[LogRows], name: str) -> tuple[int, int]:
    """The first and the last row that have a series."""
    there = np.flatnonzero(np.concatenate([present(rows, name) for rows in packs]))
    return (int(there[0]), int(there[-1])) if len(there) else (0, -1)


def guided(rows: LogRows, guides: Sequence[str]) -> Flags:
    """Which rows have one of the guides."""
    return np.any([present(rows, name) for name in guides], axis=0) if guides else present(rows, None)


def guiding(rows: LogRows, guides: Sequence[str]) -> Floats:
    """The values of the guide; in a stretch that has another one, the values of that."""
    values = floats(rows, None)
    for name in guides:
        values = np.where(np.isnan(values), floats(rows, name), values)
    return values


def run_counters(packs: Sequence[LogRows], guides: Sequence[str]) -> tuple[str, ...]:
    """The columns that name a fold, a seed or a start of the program, and hold for several points of the guide.

    What changes from point to point describes the point: the seed of an episode, the best epoch of each fold.
    """
    points = sum(int(np.sum(guided(rows, guides))) for rows in packs)
    found = dict.fromkeys(
        name for rows in packs for name in rows.columns
        if name in (RUN_COUNT, STARTS) or RUN_COUNTERS & set(spellings(name))
    )  # fmt: skip
    changed = dict.fromkeys(found, 0)
    above: dict[str, float] = {}
    for rows in packs:
        where = np.flatnonzero(guided(rows, guides))
        for name in found:
            changed[name] += int(np.sum(_changed(rows, where, name, above)))
    return tuple(name for name in found if changed[name] < _EACH * points or points < _FEWEST)


def changes(rows: LogRows, guides: Integers, counters: Sequence[str], above: dict[str, float]) -> tuple[Flags, Flags]:
    """For each point of the guide: has a counter above the epochs changed before it, and has the program started?

    `above` has the last value of each counter, and gets the new ones.
    """
    changed, started = np.zeros(len(guides), bool), np.zeros(len(guides), bool)
    for name in counters:
        flags = started if name == STARTS else changed
        flags |= _changed(rows, guides, name, above)
    return changed, started


def _changed(rows: LogRows, guides: Integers, name: str, above: dict[str, float]) -> Flags:
    """Whether a counter has another value than at the point before."""
    if not len(guides) or name not in rows.columns:
        return np.zeros(len(guides), bool)
    known = above.get(name, np.nan)
    last = np.maximum.accumulate(np.where(present(rows, name), np.arange(rows.count), -1))[guides]
    held = np.where(last >= 0, floats(rows, name)[np.maximum(last, 0)], known)
    before = np.concatenate([[known], held[:-1]])
    above[name] = float(held[-1])
    changed: Flags = (held != before) & ~np.isnan(before)
    return changed


def present(rows: LogRows, name: str | None) -> Flags:
    if name is None or name not in rows.columns:
        return np.zeros(rows.count, bool)
    present: Flags = rows.columns[name].is_valid().to_numpy(zero_copy_only=False)
    return present


def floats(rows: LogRows, name: str | None) -> Floats:
    """A column as floats, NaN if it is missing."""
    if name is None or name not in rows.columns:
        return np.full(rows.count, np.nan)
    values: Floats = rows.columns[name].to_numpy(zero_copy_only=False).astype(float, copy=False)
    return values
