"""Which column of a table is what: names and values of a long table, the run of a row, times.

A wide table has a column per series. A long one has a row per point: the series' name in one column, its value in
another. Both are known by the names and kinds of their columns, whichever program wrote them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from steadyrun.importers.log_rows import SourceRun
from steadyrun.importers.series_roles import EPOCH, STEP, TIME, rank

_NAMES = (
    "metricname", "metric", "tag", "name", "key", "attributepath", "attributename", "variable", "scalar", "series",
)  # fmt: skip
_VALUES = ("value", "metricvalue", "scalarvalue", "floatvalue", "val", "y", "scalar")
_CONTEXTS = ("contextsubset", "metriccontextsubset", "runcontext", "context", "subset", "split", "phase", "mode")
_RUN_IDS = ("runid", "runuuid", "runhash", "experimentkey")
_RUN_NAMES = ("runname", "run", "trainingjobname", "experimentname")
_STEPS = ("x", "steps")
_TIMES = ("walltime", "timestamp", "time", "date", "datetime", "createdat")
_INDICES = ("idx", "index", "id", "offset", "")
_MOST_RUNS = 10_000  # more different entries in a column of runs: it is something else
_YEAR = re.compile(r"\d{4}-\d\d-\d\d")


def plain(name: str) -> str:
    """A column's name as its letters and digits in lower case: `metric.name` and `metricName` are alike."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def first_of(known: Sequence[str], names: Iterable[str]) -> str | None:
    """The column that comes first in a list of known names; None if no column is in it."""
    spelled = {plain(name): name for name in reversed(list(names))}
    return next((spelled[name] for name in known if name in spelled), None)


@dataclass(frozen=True)
class LongColumns:
    """The columns of a long table; without `name` it holds one series, which the file is named after."""

    value: str
    name: str | None = None
    context: str | None = None
    step: str | None = None
    epoch: str | None = None
    time: str | None = None

    @property
    def names(self) -> set[str]:
        """The columns that the table has."""
        columns = (self.value, self.name, self.context, self.step, self.epoch, self.time)
        return {name for name in columns if name is not None}


def long_columns(text: Sequence[str], numbers: Sequence[str]) -> LongColumns | None:
    """The columns of a long table; None if the table is wide. `text` and `numbers` are the columns of each kind."""
    value = first_of(_VALUES, numbers)
    if value is None:
        return None
    others = [name for name in numbers if name != value]
    step = axis(STEP, others) or first_of(_STEPS, others)
    epoch = axis(EPOCH, others)
    time = axis(TIME, [*others, *text]) or first_of(_TIMES, [*others, *text])
    taken = {step, epoch, time, *run_columns([*others, *text])}
    alone = all(name in taken or plain(name) in _INDICES for name in others)
    words = [name for name in text if name not in taken]
    context = first_of(_CONTEXTS, words)
    words = [name for name in words if name != context]
    name = first_of(_NAMES, words) or (words[0] if alone and len(words) == 1 else None)
    if name is None and not (alone and not words and (step or epoch or time)):
        return None
    return LongColumns(value, name, context, step, epoch, time)


def axis(role: str, names: Iterable[str]) -> str | None:
    """The column that plays a role of the axis best."""
    ranked = [(order, index, name) for index, name in enumerate(names) if (order := rank(role, name)) is not None]
    return min(ranked)[2] if ranked else None


def run_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The columns that say to which run a row belongs: an identifier first, then a name."""
    there = list(names)
    found = (first_of(_RUN_IDS, there), first_of(_RUN_NAMES, there))
    return tuple(name for name in found if name is not None)


@dataclass
class RunCounter:
    """Counts the rows of each run of a table, by the columns that `run_columns` gives."""

    columns: tuple[str, ...]
    counts: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, entries: Sequence[Sequence[str]]) -> bool:
        """The entries of some rows, column by column; False once there are too many different ones."""
        if entries:
            self.counts.update(entries[0])
            self.names.update(zip(entries[0], entries[-1], strict=True))
        return len(self.counts) <= _MOST_RUNS

    def parts(self) -> list[SourceRun]:
        """The runs; a nameless one if there is only one, or if the column has hardly any entry twice."""
        runs = [entry for entry in self.counts if entry and entry not in self.columns]
        if len(runs) < 2 or len(runs) > _MOST_RUNS or len(runs) > sum(self.counts.values()) / 2:
            return [SourceRun("")]
        return [SourceRun(self.names[entry] or entry, entry) for entry in runs]


def in_context(name: str, context: str) -> str:
    """A series' name with the part of the data it is about in front, unless it says so itself."""
    word = "val" if context.strip().lower() == "validate" else context.strip()
    if not word or word.lower() in ("none", "null", "{}", "nan") or plain(word) in plain(name):
        return name
    return f"{word}/{name}"


def seconds(text: str) -> float | None:
    """Seconds since 1970 of a date in ISO's form; None if the text is none. Without a zone it counts as UTC."""
    if not _YEAR.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
