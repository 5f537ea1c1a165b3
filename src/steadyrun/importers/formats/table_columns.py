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
from functools import lru_cache
from itertools import accumulate

from steadyrun.importers.log_rows import WIDEST, SourceRun
from steadyrun.importers.series_roles import EPOCH, HELD_OUT, RUN_COUNTERS, STEP, TIME, TRAIN, rank, spellings

_NAMES = (
    "metricname", "metric", "tag", "name", "key", "attributepath", "attributename", "variable", "scalar", "series",
)  # fmt: skip
_VALUES = ("value", "metricvalue", "scalarvalue", "floatvalue", "val", "y", "scalar")
_CONTEXTS = ("contextsubset", "metriccontextsubset", "runcontext", "context", "subset", "split", "phase", "mode")
SPLITS = ("mode", "split", "phase", "stage", "subset", "set", "dataset", "partition", "type", "kind", "data")
"""Columns that may say which data a row is about."""
EVALUATIONS = frozenset({"val", "valid", "validation", "validate", "eval", "evaluation", "test", "dev"})
_OF_THE_RUN = (STEP, EPOCH, TIME, "lr", "grad_norm", "loss_scale")  # the same in training and in an evaluation
_RUN_IDS = ("runid", "runuuid", "runhash", "experimentkey")
_RUN_NAMES = ("runname", "run", "trainingjobname", "experimentname")
_STEPS = ("x", "steps")
_TIMES = ("walltime", "timestamp", "time", "date", "datetime", "createdat")
_INDICES = ("idx", "index", "id", "offset", "")
_LABELS = RUN_COUNTERS | {"model", "method", "algorithm", "algo", "experiment", "exp"}
_STAGES = frozenset({"stage", "phase", "task", "dataset"})  # they may take turns within one training
_TURNS = 3  # rows of one label after the other, on average: if there are fewer, the rows of the runs take turns
_IN_NAME = re.compile(r"(?:^|(?<=[\W_]))(?P<run>(?:fold|seed|run|trial|rep|repeat)[ _-]?\d{1,4})(?:$|(?=[\W_]))", re.I)
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


def label_columns(names: Iterable[str], stages: bool = False) -> tuple[str, ...]:
    """The columns that say of which fold, seed or model a row is; with `stages`, also of which phase of training."""
    known = _LABELS | _STAGES if stages else _LABELS - _STAGES
    return tuple(name for name in names if known & set(spellings(name)))


def runs_by_column(names: Iterable[str], rest: str) -> dict[str, dict[str, str]]:
    """Run, then column to name, for columns such as `fold_1/loss` and `loss_fold2`; none if there are fewer than two.

    A column whose name is the run alone is called `rest`.
    """
    runs: dict[str, dict[str, str]] = {}
    for name in names:
        if found := _IN_NAME.search(name):
            own = re.sub(r"^[\W_]+|[\W_]+$|(?<=[\W_])[\W_]+", "", name[: found.start()] + name[found.end() :])
            runs.setdefault(found["run"], {})[name] = own or rest
    alike = {tuple(sorted(columns.values())) for columns in runs.values()}
    return runs if len(runs) > 1 and len(alike) == 1 else {}


@dataclass
class Labels:
    """Counts how often a row is of another fold, seed or phase than the row before, by columns of words."""

    last: tuple[str, ...] = ()
    count: int = 0

    def counted(self, columns: Sequence[Sequence[str]]) -> list[float] | None:
        """The count at each row; None if the words say which data a row is about, are numbers, or take turns."""
        naming = [column for column in columns if any(column) and not any(map(_is_data_or_number, set(column)))]
        labels = list(zip(*naming, strict=True))
        before = [self.last or labels[0], *labels[:-1]] if labels else []
        changed = [a != b for a, b in zip(before, labels, strict=True)]
        if not labels or sum(changed) * _TURNS > len(labels):
            return None
        counts = [self.count + float(count) for count in accumulate(changed)]
        self.last, self.count = labels[-1], int(counts[-1])
        return counts


def _is_data_or_number(word: str) -> bool:
    return word.lower() in TRAIN | HELD_OUT or re.fullmatch(r"[-+.\d]+(?:e[-+]?\d+)?", word, re.I) is not None


@dataclass
class RunCounter:
    """Counts the rows of each run of a table, by the columns that `run_columns` or `label_columns` give."""

    columns: tuple[str, ...]
    labels: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    names: dict[str, str] = field(default_factory=dict)
    _turns: int = 0
    _last: str | None = None

    def add(self, entries: Sequence[Sequence[str]]) -> bool:
        """The entries of some rows, column by column; False once there are too many different ones."""
        if entries:
            self.counts.update(entries[0])
            self.names.update(zip(entries[0], entries[-1], strict=True))
            before = [self._last, *entries[0][:-1]]
            self._turns += sum(a != b for a, b in zip(before, entries[0], strict=True))
            self._last = entries[0][-1] if entries[0] else self._last
        return len(self.counts) <= _MOST_RUNS

    def parts(self) -> list[SourceRun]:
        """The runs; a nameless one if there is only one, or if the column has hardly any entry twice.

        Labels are runs of their own only if their rows take turns; otherwise the steps say where each begins.
        """
        runs = [entry for entry in self.counts if entry and entry not in self.columns]
        rows = sum(self.counts.values())
        if len(runs) < 2 or len(runs) > _MOST_RUNS or len(runs) > rows / 2:
            return [SourceRun("")]
        if self.labels:
            apart = self._turns * _TURNS <= rows or any(entry.lower() in TRAIN | HELD_OUT for entry in runs)
            return [SourceRun("")] if apart else [SourceRun(f"{self.columns[0]}-{entry}", entry) for entry in runs]
        return [SourceRun(self.names[entry] or entry, entry) for entry in runs]


def in_context(name: str, context: str) -> str:
    """A series' name with the part of the data it is about in front, unless it says so itself."""
    word = "val" if context.strip().lower() == "validate" else context.strip()
    if not word or word.lower() in ("none", "null", "{}", "nan") or plain(word) in plain(name):
        return name
    return f"{word}/{name}"


@lru_cache(maxsize=WIDEST)
def held_out_name(name: str) -> str:
    """What a series of training is called in an evaluation: with `val_` in front, unless it says so itself."""
    if EVALUATIONS & set(spellings(name)[1].split("_")):
        return name
    return name if any(rank(role, name) is not None for role in _OF_THE_RUN) else f"val_{name}"


def seconds(text: str) -> float | None:
    """Seconds since 1970 of a date in ISO's form; None if the text is none. Without a zone it counts as UTC."""
    if not _YEAR.match(text):
        return None
    try:
        moment = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
