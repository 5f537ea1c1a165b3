"""The ranks of a run, joined: the same columns side by side, by step. No clock of one rank is compared with another's.

Each rank's files are opened once. What is kept is bounded: of a long run, or of many ranks, the steps are thinned, by
the same rule on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from steadyrun.records import Event
from steadyrun.signals.curves import Floats
from steadyrun.store.flight_recorder import Trace
from steadyrun.store.heartbeats import Heartbeat
from steadyrun.store.ranks import MOST_RANKS, Column, RankEvents, rank_list
from steadyrun.text import listed

Steps = npt.NDArray[np.int64]
Group = tuple[int, ...]
"""Ranks."""

GRADIENT, PARAMETER, START, END = "gradient_digest", "parameter_digest", "start_digest", "end_digest"
START_STATE = "start_state_digest"  # of the optimizers' moments
UNREDUCED = "unreduced_gradients"
DDP, FSDP, TENSOR, MIXED = "ddp", "fsdp", "tensor-parallel", "mixed"
UNKNOWN = "unknown"
OUTSIDE = "outside"  # the class of parameters that DDP does not average
_BY_STEP = (
    "loss",
    "backward_loss",
    "grad_norm",
    "grad_norm_applied",
    "loss_scale",
    "skipped",
    "clipped",
    "clip_threshold",
    "clip_norm",
    "local_grad_norm",
    "training",
)
_TIMES = ("step_time", "time/data", "time/forward", "time/backward", "time/update", "time/busy")
_BATCHES = ("batch_hash", "examples", "input_digest")
_STATES = ("state_digest", START_STATE, "random_digest", "collectives", UNREDUCED)
_MOST_CELLS = 8_000_000  # numbers kept of all ranks and columns together: 64 MB
_MOST_ROWS = 100_000_000  # rows to read of all ranks together, where the files allow to skip some
_MOST_HASHES = 4_000_000  # hashes of examples kept of all ranks together
_COLUMNS = 24  # per rank, about
_FEWEST_STEPS = 64  # steps kept of a column, whatever the number of ranks
_NAMED = 4  # ranks in one message
_FEWEST_ROWS = 1000  # to read of a rank, however many there are
_HALF = 0.5  # of the sampled steps
_EXACT = 2.0**53  # larger whole numbers are rounded


class RankSource(Protocol):
    """What the join needs; `RunReader.by_rank` is one."""

    @property
    def present(self) -> list[int]: ...
    def events(self, rank: int) -> RankEvents: ...
    def columns(
        self,
        rank: int,
        tables: Sequence[str],
        wanted: Callable[[str], bool],
        *,
        seams: Mapping[int, int] | None = None,
        most_rows: int = ...,
        several: bool = False,
    ) -> dict[str, Column]: ...
    def heartbeats(self) -> dict[int, Heartbeat]: ...
    def traces(self) -> dict[int, Trace]: ...


@dataclass(frozen=True)
class RankFacts:
    """What the events of one rank show."""

    rank: int
    world: int = 0
    host: str = ""
    structure: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    optimizers: Mapping[str, Any] = field(default_factory=dict)
    buffers: Mapping[int, Any] = field(default_factory=dict)  # by step of a validation: the digest of all buffers
    seams: Mapping[int, int] = field(default_factory=dict)
    validations: int = 0
    stopped: tuple[str, int | None] = ("", None)  # how it failed or stalled, and at which step
    closed: bool = False
    failure: Event | None = None  # the exception that ended it
    stall: Event | None = None  # the step that lasted too long, if it did not go on


@dataclass(frozen=True)
class Matrix:
    """One column of several ranks: a row for each step, a column for each rank, NaN for what is missing."""

    steps: Steps
    ranks: Group
    values: Floats

    def of(self, ranks: Sequence[int]) -> Matrix:
        """Only these ranks."""
        chosen = set(ranks)
        if chosen.issuperset(self.ranks):
            return self
        kept = [index for index, rank in enumerate(self.ranks) if rank in chosen]
        return Matrix(self.steps, tuple(self.ranks[index] for index in kept), self.values[:, kept])

    def before(self, step: int | None) -> Matrix:
        keep = slice(None) if step is None else self.steps < step
        return Matrix(self.steps[keep], self.ranks, self.values[keep])

    @cached_property
    def compared(self) -> npt.NDArray[np.bool_]:
        """Whether a step has values of two ranks or more."""
        return np.asarray(np.sum(~np.isnan(self.values), axis=1) > 1)

    @cached_property
    def differs(self) -> npt.NDArray[np.bool_]:
        """Whether the values of a step differ."""
        return self.apart() > 0

    def apart(self) -> Floats:
        """How far the largest and the smallest value of each step are apart, relative to the largest magnitude."""
        found = np.zeros(len(self.steps))
        rows = self.values[self.compared]
        if len(rows):
            low, high = np.nanmin(rows, axis=1), np.nanmax(rows, axis=1)
            with np.errstate(all="ignore"):
                size = np.maximum(np.abs(low), np.abs(high))
                found[self.compared] = np.where(high == low, 0.0, np.abs(high - low) / np.where(size > 0, size, 1.0))
        return found

    def odd(self, index: int) -> Group:
        """The ranks that differ from the majority at a step; all of them if there is no majority."""
        row = self.values[index]
        values, counts = np.unique(row[~np.isnan(row)], return_counts=True)
        if len(values) < 2:
            return ()
        there = [rank for rank, value in zip(self.ranks, row, strict=True) if not np.isnan(value)]
        if int(counts.max()) * 2 <= int(counts.sum()):
            return tuple(there)
        usual = values[int(np.argmax(counts))]
        other = ~np.isnan(row) & (row != usual)
        return tuple(rank for rank, differs in zip(self.ranks, other.tolist(), strict=True) if differs)


class Ranks:
    """All ranks of a run, read on demand."""

    def __init__(self, source: RankSource) -> None:
        self._source = source
        self._hashes: dict[int, Column] | None = None
        self.memo: dict[Any, Any] = {}  # results that several questions share

    @cached_property
    def _facts(self) -> dict[int, RankFacts]:
        return {rank: _facts(rank, self._source.events(rank)) for rank in self._source.present}

    @cached_property
    def world(self) -> int:
        """The number of processes of the newest attempt."""
        known = [facts.world for facts in self._facts.values() if facts.world]
        return known[0] if known else max(self._source.present, default=-1) + 1

    @cached_property
    def present(self) -> Group:
        """The ranks that have files."""
        return tuple(rank for rank in self._facts if rank < self.world)

    @property
    def missing(self) -> Group:
        """The ranks without files."""
        return tuple(sorted(set(range(self.world)) - set(self.present)))

    def heartbeats(self) -> dict[int, Heartbeat]:
        """The last heartbeat of each rank."""
        return self._source.heartbeats()

    def traces(self) -> dict[int, Trace]:
        """The last collectives of each rank, if the Flight Recorder's traces are there."""
        return self._source.traces()

    def of(self, rank: int) -> RankFacts:
        return self._facts.get(rank) or RankFacts(rank)

    # -- structure ------------------------------------------------------------------------------------------

    @cached_property
    def kind(self) -> str:
        """How the model is spread over the ranks, as the first rank with an answer recorded it."""
        kinds = [str(self.of(rank).structure.get("parallelism") or "") for rank in self.present]
        return next((kind for kind in kinds if kind), UNKNOWN)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Sets of parameters with one placement, of all ranks; if the structure is not known, those with digests."""
        named = {name: None for rank in self.present for name in _classes(self.of(rank))}
        if not named:
            return tuple(name.partition("/")[2] for name in self.names if name.startswith(f"{GRADIENT}/"))
        return (*named, OUTSIDE) if f"{GRADIENT}/{OUTSIDE}" in self.names else tuple(named)

    def groups(self, name: str) -> list[Group]:
        """The groups of ranks that must hold the same bits of a class of parameters.

        If the structure is not known, ranks are replicas if their gradients show it: they agree in most samples.
        Parameters outside of DDP are replicas if they begin equal.
        """
        if name == OUTSIDE:
            inside = [group for each in self.classes if each != OUTSIDE for group in self.groups(each)]
            return [group for group in inside if self._begins_equal(group)]
        found = self._members(name, "replicas")
        return found or ([] if any(_classes(self.of(rank)) for rank in self.present) else self._alike(name))

    @property
    def replicas_are_missing(self) -> bool:
        """Whether there is nothing to compare because the replicas of the recorded ranks left no files."""
        named = [placed.get("replicas") for rank in self.present for placed in _classes(self.of(rank)).values()]
        here = any(self.groups(name) for name in self.classes)
        return bool(self.missing) and not here and any(len(rank_list(each)) > 1 for each in named)

    def _begins_equal(self, group: Group) -> bool:
        """Whether the parameters outside of DDP begin equal on all ranks of a group."""
        start = self.matrix(f"{START}/{OUTSIDE}").of(group)
        return bool(np.any(start.compared)) and not np.any(start.differs)

    def _members(self, name: str, role: str) -> list[Group]:
        if (name, role) not in self.memo:
            given = [_classes(self.of(rank)).get(name, {}).get(role) for rank in self.present]
            different = {str(each): each for each in given}.values()  # of 1,024 ranks most name the same members
            groups = [tuple(sorted(set(rank_list(each)).intersection(self.present))) for each in different]
            self.memo[name, role] = list(dict.fromkeys(group for group in groups if len(group) > 1))
        found: list[Group] = self.memo[name, role]
        return found

    def hook(self, group: Group) -> str:
        """The communication hook that DDP runs instead of an average of all gradients; "" without one."""
        return next((str(hook) for rank in group if (hook := self.of(rank).structure.get("hook"))), "")

    def shards(self, name: str) -> list[Group]:
        """The groups of ranks that hold different parts of a class of parameters."""
        return self._members(name, "shards")

    @cached_property
    def data_parallel(self) -> list[Group]:
        """The groups of ranks that train on different data; empty if that is not known.

        The record names them for DDP and FSDP. Ranks of a tensor-parallel group get the same data.
        """
        named = [data for rank in self.present if (data := self.of(rank).structure.get("data")) is not None]
        if named:
            here, different = set(self.present), {str(each): each for each in named}.values()
            groups = _merged([tuple(sorted(here.intersection(rank_list(each)))) for each in different])
            return [group for group in groups if len(group) > 1]
        return [] if self.kind in {TENSOR, MIXED} else self.together

    @cached_property
    def together(self) -> list[Group]:
        """The groups of ranks that train one model, whatever each holds of it."""
        return _merged([group for name in self.classes for group in [*self.groups(name), *self.shards(name)]])

    def _alike(self, name: str) -> list[Group]:
        """Ranks of an unknown structure whose gradients agree at most sampled steps: somebody averages them."""
        digests = self.matrix(f"{GRADIENT}/{name}")
        several = digests.compared
        if int(several.sum()) < 2 or len(np.unique(digests.values[several][:, 0])) < 2:  # no gradients: no evidence
            return []
        return [digests.ranks] if float(np.mean(digests.differs[several])) < _HALF else []

    # -- columns --------------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """The columns that were joined."""
        return list(self._columns)

    def matrix(self, name: str) -> Matrix:
        """A column of all ranks that have it, at the steps of any of them."""
        if ("matrix", name) not in self.memo:
            self.memo["matrix", name] = matrix_of(self._columns.get(name, {}))
        matrix: Matrix = self.memo["matrix", name]
        return matrix

    def column(self, name: str, rank: int) -> Column:
        """The joined column of one rank; empty if it has none."""
        return self._columns.get(name, {}).get(rank, _NOTHING)

    def odd(self, name: str) -> Iterator[tuple[int, Group]]:
        """The steps at which the ranks differ in a column, each with the ranks that differ from the majority."""
        matrix = self.matrix(name)
        for index in np.flatnonzero(matrix.differs).tolist():
            yield int(matrix.steps[index]), matrix.odd(index)

    def last_step(self, rank: int) -> int | None:
        """The last step that a rank recorded."""
        ends = [int(steps[-1]) for columns in self._columns.values() if len(steps := columns.get(rank, _NOTHING)[0])]
        return max(ends, default=None)

    @cached_property
    def _columns(self) -> dict[str, dict[int, Column]]:
        """By name and rank: the columns that questions compare, thinned to the same steps."""
        most = max(_FEWEST_STEPS, _MOST_CELLS // max(1, len(self.present) * _COLUMNS))
        rows = max(_FEWEST_ROWS, _MOST_ROWS // max(1, len(self.present)))
        kept: dict[str, dict[int, Column]] = {}
        thinning = _Thinning(most)
        for rank in self.present:
            columns = self._source.columns(
                rank, ("steps", "digests"), _is_joined, seams=self.of(rank).seams, most_rows=rows
            )
            for name, column in columns.items():
                kept.setdefault(name, {})[rank] = thinning.keep(column)
        return kept

    def series(self, rank: int, name: str, tables: Sequence[str] = ("steps",)) -> Column:
        """One column of one rank, whole: for what needs every step."""
        found = self._source.columns(rank, tables, lambda column: column == name, seams=self.of(rank).seams)
        return found.get(name, _NOTHING)

    def block_columns(self, rank: int, prefix: str) -> dict[str, Column]:
        """The digests or norms of one rank by block, for example below `gradient_digest/replicated/`."""
        wanted: Callable[[str], bool] = lambda column: column.startswith(prefix)  # noqa: E731
        found = self._source.columns(rank, ("digests", "samples"), wanted, seams=self.of(rank).seams)
        return {name.removeprefix(prefix): column for name, column in found.items()}

    def examples(self, ranks: Sequence[int]) -> dict[int, Column]:
        """Steps and hashes of the training examples of each rank, thinned by the hash so that ranks are comparable."""
        if self._hashes is None:
            self._hashes = dict(_examples(self._source, ranks))
        return {rank: self._hashes[rank] for rank in ranks if rank in self._hashes}


_NOTHING: Column = np.empty(0, np.int64), np.empty(0)


def _is_joined(name: str) -> bool:
    """Whether a column is compared across all ranks: of digests those of whole classes, not of blocks."""
    if name in (*_BY_STEP, *_BATCHES, *_TIMES, *_STATES) or name.startswith("lr/"):
        return True
    return name.startswith((f"{GRADIENT}/", f"{PARAMETER}/", f"{START}/", f"{END}/")) and name.count("/") == 1


def _facts(rank: int, record: RankEvents) -> RankFacts:
    last: dict[str, Event] = {}
    buffers: dict[int, Any] = {}
    stopped: tuple[str, int | None] = ("", None)
    failure: Event | None = None
    stall: Event | None = None
    for event in record.events:
        if event.kind in {"resume", "process"}:  # of an earlier attempt
            stopped, failure, stall = ("", None), None, None
        if event.kind == "process-failed":
            failure = event
        elif event.kind == "stalled":
            stall = event
        if event.kind in {"process-failed", "crash"} or _waits(event):
            stopped = (event.kind, event.step)
        elif event.kind == "went-on":
            stopped, stall = ("", None), None
        elif event.kind == "validation" and event.step is not None and "buffers" in event.fields:
            buffers[event.step] = event.fields["buffers"]
        elif event.kind in {"process", "structure", "optimizers"}:
            last[event.kind] = event
        elif event.kind == "loader":
            last.setdefault(event.kind, event)
    fields = {kind: event.fields for kind, event in last.items()}
    process = fields.get("process", {})
    world = process.get("world")
    known = isinstance(world, int) and 0 < world <= MOST_RANKS
    return RankFacts(
        rank,
        int(world) if known and world is not None else 0,
        str(process.get("host") or ""),
        fields.get("structure", {}),
        fields.get("loader", {}),
        fields.get("optimizers", {}),
        buffers,
        record.seams,
        sum(event.kind == "validation" for event in record.events),
        stopped,
        record.closed,
        failure,
        stall,
    )


def _waits(event: Event) -> bool:
    """Whether a process stalls in a pass, where it waits for others; a long validation or checkpoint is its own."""
    return event.kind == "stalled" and event.fields.get("phase") in {"forward", "backward"}


def _classes(facts: RankFacts) -> dict[str, Mapping[str, Any]]:
    classes = facts.structure.get("classes")
    known = classes.items() if isinstance(classes, Mapping) else ()
    return {str(name): placed for name, placed in known if isinstance(placed, Mapping)}


def _merged(groups: Sequence[Group]) -> list[Group]:
    """Groups that have a rank in common, as one."""
    found: list[set[int]] = []
    for group in groups:
        joined = set(group).union(*(other for other in found if other & set(group)))
        found = [*(other for other in found if not other & joined), joined]
    return [tuple(sorted(group)) for group in found]


class _Thinning:
    """Keeps the first steps of a column, and those divisible by a power of two that all ranks share."""

    def __init__(self, most: int) -> None:
        self._most, self._stride = most, 1

    def keep(self, column: Column) -> Column:
        steps, values = column
        if len(steps) <= self._most:
            return column
        while np.sum(steps % self._stride == 0) > self._most:
            self._stride *= 2
        kept = steps % self._stride == 0
        kept[: _FEWEST_STEPS // 2] = True
        return steps[kept], values[kept]


def matrix_of(columns: Mapping[int, Column]) -> Matrix:
    """One column of several ranks, side by side."""
    ranks = tuple(sorted(columns))
    if not ranks:
        return Matrix(np.empty(0, np.int64), (), np.empty((0, 0)))
    steps = np.unique(np.concatenate([columns[rank][0] for rank in ranks]))
    values = np.full((len(steps), len(ranks)), np.nan)
    for index, rank in enumerate(ranks):
        values[np.searchsorted(steps, columns[rank][0]), index] = columns[rank][1]
    return Matrix(steps, ranks, values)


def _examples(source: RankSource, ranks: Sequence[int]) -> Iterator[tuple[int, Column]]:
    most, modulus = max(_FEWEST_STEPS, _MOST_HASHES // max(1, len(ranks))), 1
    name = "example_hash/train"
    for rank in ranks:
        steps, values = source.columns(rank, ("examples",), lambda column: column == name, several=True).get(
            name, _NOTHING
        )
        kept = np.isfinite(values) & (np.abs(values) < _EXACT)
        steps, hashes = steps[kept], values[kept].astype(np.int64)
        while np.sum(hashes % modulus == 0) > most:
            modulus *= 2
        keep = hashes % modulus == 0
        yield rank, (steps[keep], hashes[keep].astype(float))


def in_words(ranks: Sequence[int]) -> str:
    """Ranks by name: "rank 3", "ranks 0 and 1", "ranks 0 to 63", "ranks 0, 5, 9 and 61 more"."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) <= _NAMED:
        return f"ranks {', '.join(names[:-1])} and {names[-1]}"
    if list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {names[0]} to {names[-1]}"
    return f"ranks {listed(names)}"
