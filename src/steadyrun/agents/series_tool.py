"""The tool `series`: which series a run has, and one of them in few points that keep its spikes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.agents.bounded_json import Answer, figure, page, short
from steadyrun.agents.run_names import BAD_ARGUMENT, NO_SERIES, Problem, find, name_of
from steadyrun.errors import UsageError
from steadyrun.panels.thinning import places
from steadyrun.records import Series
from steadyrun.signals.smoothing import thinned
from steadyrun.store.discover import Root
from steadyrun.store.reader import open_run
from steadyrun.store.series_catalogue import entry_for

LEAST, MOST = 10, 500  # points
_NAMES = 300  # on one page

Values = npt.NDArray[np.float64]


def series(
    root: Root,
    run: str,
    name: str = "",
    pattern: str = "*",
    first: int | None = None,
    last: int | None = None,
    points: int = 100,
    offset: int = 0,
) -> Answer:
    """One series, or without a name the names that match the pattern."""
    location = find(root, run)
    view = open_run(location.path).as_of_now()
    if not name:
        return {"run": name_of(location)} | _names(view.names(), pattern, offset)
    try:
        chosen = view.series(name)
    except UsageError as problem:
        hint = str(problem).partition("; ")[2]
        remedy = f"{short(hint, 300)} (series with a pattern lists the names)"
        raise Problem(NO_SERIES, f"this run has no series {short(name, 100)!r}", remedy) from None
    return {"run": name_of(location)} | _one(chosen, first, last, points)


def _names(names: list[str], pattern: str, offset: int) -> Answer:
    """The names that match, one page of them."""
    matching = [name for name in names if fnmatchcase(name, pattern)]

    def wrap(shown: list[Any]) -> Answer:
        return {"pattern": short(pattern, 100), "total": len(matching), "offset": offset, "names": shown}

    shown = [short(name, 300) for name in matching[offset : offset + _NAMES]]
    return page(shown, offset, len(matching), wrap)


def _one(chosen: Series, first: int | None, last: int | None, most: int) -> Answer:
    if first is not None and last is not None and first > last:
        raise Problem(BAD_ARGUMENT, f"first ({first}) is after last ({last})", "swap them")
    inside = np.ones(len(chosen), bool)
    if first is not None:
        inside &= chosen.steps >= first
    if last is not None:
        inside &= chosen.steps <= last
    steps, values = chosen.steps[inside], chosen.values[inside]
    kept = few(values, most)
    entry = entry_for(chosen.name)
    return {
        "name": short(chosen.name),
        "meaning": None if entry is None else entry.meaning,
        "unit": None if entry is None else entry.unit or None,
        "total": len(chosen),
        "in_range": len(steps),
        "shown": len(kept),
        "range": None if not len(chosen) else [int(chosen.steps[0]), int(chosen.steps[-1])],
        "summary": summary(steps, values),
        "points": [[int(step), figure(float(value))] for step, value in zip(steps[kept], values[kept], strict=True)],
    }


def few(values: Values, most: int) -> npt.NDArray[np.int64]:
    """Which points to show, at most `most`: the ends, the lowest and highest of every stretch, and of those that are
    not finite the first, the last and some between."""
    if len(values) <= most:
        return np.arange(len(values))
    good, bad = np.flatnonzero(np.isfinite(values)), np.flatnonzero(~np.isfinite(values))
    room = max(most // 4, most - len(good))
    shown = bad[thinned(len(bad), room)] if len(bad) else bad
    return np.unique(np.concatenate([_extremes(values, good, most - len(shown)), shown]))


def _extremes(values: Values, good: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """At most that many of the finite points; the ends come on top of what thinning keeps, if they are no extremes."""
    if not len(good):
        return good
    kept = good[places(values[good], most)]
    return kept if len(kept) <= most else good[places(values[good], most - 2)]


def summary(steps: npt.NDArray[np.int64], values: Values) -> dict[str, Any] | None:
    """The ends, the extremes and the middle of the finite values, and how many are not finite, from which step on."""
    if not len(values):
        return None
    finite = np.isfinite(values)
    good, where = values[finite], steps[finite]
    ends = {"first": _point(steps, values, 0), "last": _point(steps, values, -1)}
    bad = {
        "not_finite": int(np.sum(~finite)),
        "first_not_finite": None if finite.all() else int(steps[np.argmin(finite)]),
    }
    if not len(good):
        return ends | {"min": None, "max": None, "mean": None, "median": None} | bad
    middle = {"mean": figure(float(np.mean(good))), "median": figure(float(np.median(good)))}
    lowest, highest = _point(where, good, int(np.argmin(good))), _point(where, good, int(np.argmax(good)))
    return ends | {"min": lowest, "max": highest} | middle | bad


def _point(steps: npt.NDArray[np.int64], values: Values, index: int) -> list[Any]:
    return [int(steps[index]), figure(float(values[index]))]
