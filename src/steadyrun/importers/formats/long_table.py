"""Rows out of the points of a long table, in whichever order it lists them: by step, by time, or series by series."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from steadyrun.errors import LogError
from steadyrun.importers.formats.table_columns import LongColumns, in_context
from steadyrun.importers.log_rows import PACK, WIDEST, Anomalies, Log, LogRows
from steadyrun.signals.curves import Floats

STEP, EPOCH, TIME = "step", "epoch", "timestamp"
_AXES = (STEP, EPOCH, TIME)
MOST_POINTS = 20_000_000  # kept in memory until they are sorted: 36 bytes each
_CELLS = 2**20  # of a pack: rows times names
_TAG = re.compile(r"tag-(.+)")


@dataclass
class Points:
    """Collects the points of a long table, and puts those of one step into one row."""

    path: Path
    anomalies: Anomalies
    _names: dict[str, int] = field(default_factory=dict)
    _parts: dict[str, list[Floats]] = field(default_factory=lambda: {key: [] for key in ("name", "value", *_AXES)})
    _count: int = 0

    def add(self, names: list[str], values: Floats, **axes: Floats | None) -> None:
        """Points with the names of their series; an axis that the table does not have is None."""
        self._count += len(names)
        if self._count > MOST_POINTS:
            raise LogError(
                f"{self.path} has more than {MOST_POINTS:,} points in a table with a row per point: "
                "save it with a column per series instead (pandas: `pivot`)"
            )
        codes = [self._names.setdefault(name, len(self._names)) for name in names]
        if len(self._names) > WIDEST:
            raise LogError(
                f"{self.path}: more than {WIDEST:,} different names, so it does not look like a training log. Export "
                "the metrics alone."
            )
        self._parts["name"].append(np.array(codes, float))
        self._parts["value"].append(values)
        for key in _AXES:
            given = axes.get(key)
            self._parts[key].append(np.full(len(codes), np.nan) if given is None else given)

    def take(
        self, columns: LongColumns, count: int, numbers: Callable[[str], pa.Array], words: Callable[[str], list[str]]
    ) -> None:
        """The points of `count` rows of a long table, whose columns are given as numbers and as words."""
        names = words(columns.name) if columns.name else [series_of_file(self.path)] * count
        contexts = words(columns.context) if columns.context else [""] * count
        values = numbers(columns.value)
        there = values.is_valid().to_numpy(zero_copy_only=False) & np.array([bool(name) for name in names], bool)
        axes = {STEP: columns.step, EPOCH: columns.epoch, TIME: columns.time}
        self.add(
            [in_context(names[row], contexts[row]) for row in np.flatnonzero(there)],
            _floats(values)[there],
            **{axis: _floats(numbers(column))[there] for axis, column in axes.items() if column},
        )

    def log(self) -> Log:
        """The log that these points are, once all are added."""
        columns = {key: np.concatenate(parts) if parts else np.empty(0) for key, parts in self._parts.items()}
        by, columns = self._counted(columns)
        if not len(columns["value"]):
            raise LogError(
                f"{self.path} has no row with a name and a number. Give each row a name, a step and a value."
            )
        names = [f"logged/{name}" if name in _AXES else name for name in self._names]
        order, row = _ordered(columns, by)
        columns = {key: column[order] for key, column in columns.items()}
        there = tuple(key for key in _AXES if np.isfinite(columns[key]).any())
        roles = {"time" if key == TIME else key: key for key in there}
        return Log(_packs(columns, row, names, there), roles=roles)

    def _counted(self, columns: dict[str, Floats]) -> tuple[str, dict[str, Floats]]:
        """The column by which points are counted, and the points that have it."""
        by = next((key for key in _AXES if np.isfinite(columns[key]).any()), "")
        if not by:
            return by, columns
        usable = np.isfinite(columns[by])
        if not usable.all():
            self.anomalies.note(f"points without a {by}", "left out", count=int(np.sum(~usable)))
        return by, {key: column[usable] for key, column in columns.items()}


def _ordered(columns: dict[str, Floats], by: str) -> tuple[np.ndarray, np.ndarray]:
    """The order of the points, and the row of each of them in that order."""
    count = len(columns["value"])
    name = columns["name"]
    key = columns[by] if by else _occurrence(name)
    if np.isfinite(columns[TIME]).all() and by:
        order = np.lexsort((np.arange(count), key, columns[TIME]))
        attempt = np.zeros(count)
    else:
        attempt = _passes(name, key)
        order = np.lexsort((np.arange(count), key, attempt))
    new = np.ones(count, bool)
    new[1:] = (np.diff(key[order]) != 0) | (np.diff(attempt[order]) != 0)
    group = np.cumsum(new) - 1
    repeat = _occurrence(group * float(len(np.unique(name)) + 1) + name[order])
    if repeat.any():  # a series twice in one step: its later values get rows of their own
        again = np.lexsort((np.arange(count), repeat, group))
        order, group, repeat = order[again], group[again], repeat[again]
    new[1:] = (np.diff(group) != 0) | (np.diff(repeat) != 0)
    return order, np.cumsum(new) - 1


def _occurrence(key: Floats) -> Floats:
    """How many equal entries come before each."""
    order = np.argsort(key, kind="stable")
    new = np.ones(len(key), bool)
    new[1:] = np.diff(key[order]) != 0
    starts = np.maximum.accumulate(np.where(new, np.arange(len(key)), 0))
    count = np.empty(len(key))
    count[order] = np.arange(len(key)) - starts
    return count


def _passes(name: Floats, key: Floats) -> Floats:
    """How often the steps of a point's series went back before it; a single point out of order does not count."""
    order = np.argsort(name, kind="stable")
    along, series = key[order], name[order]
    same = np.diff(series) == 0
    back = np.zeros(len(key), bool)
    back[1:] = same & (np.diff(along) < 0)
    goes_on = np.ones(len(key), bool)  # the next point of the series is below the point before the step back, as well
    goes_on[1:-1] = ~(same[1:] & (along[2:] > along[:-2]))
    backs = np.cumsum(back & goes_on)
    first = np.ones(len(key), bool)
    first[1:] = ~same
    at_start = np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))
    passes = np.empty(len(key))
    passes[order] = backs - backs[at_start]
    return passes


def _packs(columns: dict[str, Floats], row: np.ndarray, names: list[str], axes: tuple[str, ...]) -> Iterator[LogRows]:
    rows = int(row[-1]) + 1
    size = max(1, min(PACK, _CELLS // (len(names) + 1)))
    for start in range(0, rows, size):
        low, high = np.searchsorted(row, (start, start + size))
        at, count = row[low:high] - start, min(size, rows - start)
        first = low + np.searchsorted(at, np.arange(count))
        pack = {key: pa.array(columns[key][first], pa.float64(), from_pandas=True) for key in axes}
        codes = columns["name"][low:high].astype(int)
        by_name = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[by_name], prepend=-1))
        for mine in np.split(by_name, starts[1:]):
            pack[names[codes[mine[0]]]] = _column(columns["value"][low:high][mine], at[mine], count)
        yield LogRows(count, pack)


def _column(values: Floats, at: np.ndarray, count: int) -> pa.Array:
    filled, missing = np.zeros(count), np.ones(count, bool)
    filled[at], missing[at] = values, False
    return pa.array(filled, pa.float64(), mask=missing)


def _floats(column: pa.Array) -> Floats:
    """Numbers, NaN if one is missing."""
    values: Floats = np.asarray(column.to_numpy(zero_copy_only=False), float)
    return values


def series_of_file(path: Path) -> str:
    """What a file's only series is called: the tag in the names that TensorBoard gives, or the file's name."""
    match = _TAG.search(path.stem)
    return match[1] if match else path.stem
