"""Small synthetic jobs of several ranks: where each question fires, where it stays silent, where it cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from cases import FALLING, SAMPLED, run
from synthetic import Synthetic

from steadyrun.records import Event
from steadyrun.store.ranks import Column, RankEvents

STEPS = np.arange(200)
NAN = float("nan")
Series = dict[str, Any]


class GivenRanks:
    """The columns and events of each rank, in the form of `RunReader.by_rank`."""

    def __init__(self, columns: Mapping[int, Series], events: Mapping[int, Sequence[Event]], closed: bool) -> None:
        self._columns, self._events, self._closed = columns, events, closed
        self.present = sorted(columns)

    def events(self, rank: int) -> RankEvents:
        events = self._events[rank]
        stopped = any(event.kind in {"stalled", "crash"} for event in events)
        return RankEvents(tuple(events), {1: 0}, self._closed and not stopped)

    def columns(
        self,
        rank: int,
        tables: Sequence[str],
        wanted: Callable[[str], bool],
        *,
        seams: Any = None,
        most_rows: int = 0,
        several: bool = False,
    ) -> dict[str, Column]:
        del tables, seams, most_rows, several
        return {name: column(given) for name, given in self._columns[rank].items() if wanted(name)}

    def heartbeats(self) -> dict[int, Any]:
        return {}

    def traces(self) -> dict[int, Any]:
        return {}


def column(given: Any) -> Column:
    steps, values = given if isinstance(given, tuple) else (np.arange(len(given)), given)
    return np.asarray(steps, np.int64), np.asarray(values, float)


def digests(seed: int, **changed: float) -> tuple[Any, Any]:
    """A digest at each sampled step; `at_20=…` changes the one at step 20."""
    values = np.random.default_rng(seed).integers(1, 2**40, len(SAMPLED)).astype(float)
    for name, value in changed.items():
        values[SAMPLED.index(int(name.removeprefix("at_")))] = value
    return SAMPLED, values


def since(step: int, seed: int = 2) -> tuple[Any, Any]:
    """Digests that differ from those of `seed` from a step on."""
    values = digests(seed)[1]
    return SAMPLED, np.where(np.array(SAMPLED) >= step, values + 1, values)


def healthy(rank: int) -> Series:
    source = np.random.default_rng(10 + rank)
    return {
        "loss": FALLING[:200] + 0.01 * source.normal(0, 1, 200),
        "grad_norm": np.full(200, 2.5),
        "lr/0": np.full(200, 1e-3),
        "skipped": np.zeros(200),
        "clip_threshold": np.ones(200),
        "clipped": np.ones(200),
        "batch_hash": source.integers(1, 2**40, 200).astype(float),
        "examples": np.full(200, 8.0),
        "gradient_digest/replicated": digests(1),
        "gradient_digest/replicated/a": digests(11),
        "gradient_digest/replicated/b": digests(12),
        "parameter_digest/replicated": digests(2),
        "parameter_digest/replicated/a": digests(21),
        "parameter_digest/replicated/b": digests(22),
        "start_digest/replicated": ([0], [7.0]),
        "block_param_norm/a": (SAMPLED, np.full(len(SAMPLED), 3.0)),
        "example_hash/train": (np.repeat(STEPS, 8), 10_000 * rank + np.arange(1600)),
    }


def ddp(world: int = 2) -> dict[str, Any]:
    return {"parallelism": "ddp", "classes": {"replicated": {"replicas": list(range(world)), "shards": []}}}


def spread(kind: str, world: int = 2) -> dict[str, Any]:
    classes = {"sharded": {"replicas": [], "shards": list(range(world))}}
    return {"parallelism": kind, "classes": classes, "broadcast_buffers": None}


LOADER = {"batches": 50, "sampler": "DistributedSampler", "shuffles": True, "num_replicas": 2, "seed": 0, "epoch": 0}


def job(
    *changed: Series | None,
    world: int = 2,
    structure: Any = None,
    loaders: Sequence[Mapping[str, Any]] = ({}, {}),
    events: Mapping[int, Sequence[Event]] | None = None,
    files: Sequence[int] | None = None,
) -> Synthetic:
    """A healthy job of ranks; `changed` replaces series of each rank, None leaves one out."""
    placed = ddp(world) if structure is None else structure
    columns, log = {}, {}
    for rank in range(world) if files is None else files:
        mine = healthy(rank) | (changed[rank] or {} if rank < len(changed) else {})
        columns[rank] = {name: given for name, given in mine.items() if given is not None}
        loader = {**LOADER, "rank": rank, **(loaders[rank] if rank < len(loaders) else {})}
        log[rank] = [
            Event("start", 0, 0.0, rank, {"attempt": 1}),
            Event("process", None, 0.0, rank, {"rank": rank, "world": world}),
            Event("structure", None, 0.0, rank, placed),
            Event("loader", 0, 0.0, rank, loader),
            *(events or {}).get(rank, ()),
        ]
    first = columns.get(0, {})
    shown = {name: given for name, given in first.items() if name in {"loss", "grad_norm", "lr/0", "skipped"}}
    made = run(without=("val_loss",), events=log[next(iter(log))], **shown)
    made.by_rank = GivenRanks(columns, log, closed=True)
    return made


def all_of(**series: Any) -> tuple[Series, Series]:
    return series, series


def validated(rank: int, *values: float) -> list[Event]:
    return [Event("validation", 50 * index, 0.0, rank, {"buffers": value}) for index, value in enumerate(values)]


def alone(rank: int) -> Series:
    """The gradients of a rank that nobody averages."""
    norms = np.random.default_rng(rank).uniform(1, 3, 200)
    blocks = {f"gradient_digest/replicated/{name}": digests(50 + rank + index) for index, name in enumerate("ab")}
    return {"gradient_digest/replicated": digests(40 + rank), "grad_norm": norms, **blocks}


def forgotten(rank: int, start: float) -> Series:
    """The gradients of a rank that averages by hand, except for one block."""
    return {
        "gradient_digest/replicated": digests(40 + rank),
        "gradient_digest/replicated/b": digests(50 + rank),
        "start_digest/replicated/b": ([0], [start]),
    }


def replica_by_hand(rank: int, **changed: Any) -> Series:
    """A rank whose gradients are its own, and whose parameters begin like those of the others."""
    starts = {f"start_digest/replicated/{name}": ([0], [7.0]) for name in "ab"}
    parameters = {"parameter_digest/replicated": since(5 if rank else 1000)}
    return alone(rank) | starts | parameters | {"collectives": np.zeros(200)} | changed


def added_up(rank: int, loss: float = 1.0, norm: float = 3.0) -> Series:
    """A rank that adds gradients up over the ranks; `loss` is the fraction of its loss that backward starts from."""
    losses = FALLING[:200] + 0.01 * rank
    return {
        "loss": losses,
        "backward_loss": losses * loss,
        "block_grad_norm/a": (SAMPLED, np.full(len(SAMPLED), 2.0 + 0.1 * rank)),
        "clip_norm": np.full(200, norm),
    }


def clipped_early(rank: int, apart: float = 0.1) -> Series:
    return {"clip_norm": np.full(200, 2.0 + apart * rank), "grad_norm": np.full(200, 2.0 + apart * rank)}


def optimizer(rank: int, parameters: int = 4, **settings: Any) -> list[Event]:
    """The settings of a rank's optimizer."""
    groups = [{"parameters": parameters, "elements": 40, "settings": {"weight_decay": 0.0, **settings}}]
    return [Event("optimizers", None, 0.0, rank, {"optimizers": [{"class": "AdamW", "groups": groups}]})]


def inputs(mean: float, spread: float = 1.0) -> Series:
    """The statistics of what a rank's model is given."""
    return {
        "inputs/mean": (SAMPLED, np.full(len(SAMPLED), mean)),
        "inputs/std": (SAMPLED, np.full(len(SAMPLED), spread)),
    }


def waiting(count: float) -> Series:
    """The shards of a rank, of which so many have a gradient that waits."""
    return {"unreduced_gradients": (SAMPLED, np.full(len(SAMPLED), count))}


def stage(rank: int) -> Series:
    """A part of a pipeline: each rank has blocks of its own."""
    blocks = {f"gradient_digest/replicated/{name}": None for name in "ab"}
    own = {f"gradient_digest/replicated/stage{rank}": digests(50 + rank)}
    return {"gradient_digest/replicated": digests(40 + rank), **blocks, **own}


def one_block(rank: int) -> Series:
    return alone(rank) | {"gradient_digest/replicated/a": digests(11)}


def at_some(rank: int) -> Series:
    """The gradients of a rank that are not averaged from step 20 on."""
    return alone(rank) | {"gradient_digest/replicated": since(20 if rank else 1000, 1)}


def sharded(rank: int, used: float, local: float = 1.0) -> Series:
    return {
        "local_grad_norm": np.full(200, local),
        "clip_norm": np.full(200, used),
        "gradient_digest/replicated": None,
        "parameter_digest/replicated": None,
        "start_digest/replicated": None,
        "start_digest/sharded": ([0], [5.0 + rank]),
        "start_digest/sharded/up": ([0], [5.0 + rank]),
        "start_digest/sharded/down": ([0], [8.0 + rank]),
        "parameter_digest/sharded": digests(60 + rank),
    }


SAME_SHARDS = sharded(0, 1.0)
NO_BATCHES = {"batch_hash": None, "example_hash/train": None}
SAME = {"batch_hash": healthy(0)["batch_hash"]}
SAME_LOSS = SAME | {"loss": FALLING[:200]}
CYCLE = {"batch_hash": np.arange(200) % 50 + 1.0}
ENDED = {"loss": FALLING[:120]}
OWN_STATE = {"parameter_digest/replicated": since(0), "start_state_digest": ([0], [5.0])}
BY_NAME = {"start_digest/replicated/a": ([0], [7.0]), "start_digest/replicated/b": ([0], [3.0])}
STUCK = Event("stalled", 121, 0.0, 0, {"seconds": 60.0, "phase": "backward"})
BROKEN = np.where(STEPS < 60, FALLING[:200], NAN)
LATER = np.where(STEPS < 61, FALLING[:200], NAN)
LOWER = {"loss": np.where(STEPS < 90, 1, 0.1) * FALLING[:200]}
OVERLAPPING = {"example_hash/train": (np.repeat(STEPS, 8), np.arange(1600) + 200)}
UNKNOWN = {"parallelism": "unknown", "classes": {}}
PLAIN = [{"num_replicas": None, "rank": None, "seed": None}] * 2
SHIFTED = {"example_hash/train": (np.repeat(STEPS, 8), np.arange(1600) * 2)}

CASES: list[tuple[str, str, Synthetic]] = [
    ("R1.1", "pass", job()),
    ("R1.1", "pass", job(world=4)),
    ("R1.1", "pass", job({}, {"gradient_digest/replicated": digests(1, at_20=5.0)})),  # the norms agree: clipping
    ("R1.1", "pass", job(None, alone(1) | {"gradient_digest/replicated": digests(1, at_20=5.0)})),  # one step
    ("R1.1", "not-averaged", job(alone(0), alone(1))),
    ("R1.1", "not-averaged", job(alone(0), alone(1), None, alone(3), world=4)),
    ("R1.1", "partly", job(one_block(0), one_block(1))),
    ("R1.1", "sometimes", job(at_some(0), at_some(1))),
    ("R1.1", "missing", job(*all_of(**{"gradient_digest/replicated": None}))),
    ("R1.1", "pass", job(structure=UNKNOWN)),  # equal gradients of different data show that they are averaged
    ("R1.1", "missing", job(files=[0])),  # nothing shows that the replica on rank 1 agrees
    ("R1.2", "missing", job(files=[0])),
    ("R1.1", "pass", job(world=4, files=[0, 1, 3])),
    ("R1.1", "not-applicable", run()),
    ("R1.1", "not-compared", job(alone(0), alone(1), structure=UNKNOWN)),
    ("R1.1", "perhaps-not-averaged", job(replica_by_hand(0), replica_by_hand(1), structure=UNKNOWN)),
    (
        "R1.1",
        "perhaps-not-averaged",  # averaged in every step, but too early
        job(*(replica_by_hand(rank, collectives=np.full(200, 2.0)) for rank in (0, 1)), structure=UNKNOWN),
    ),
    (
        "R1.1",
        "periodic",
        job(*(replica_by_hand(rank, collectives=2.0 * (STEPS % 20 == 19)) for rank in (0, 1)), structure=UNKNOWN),
    ),
    (
        "R1.1",
        "periodic",
        job(
            replica_by_hand(0, **{"parameter_digest/replicated": digests(2)}),
            replica_by_hand(1, **{"parameter_digest/replicated": digests(2, at_5=5.0)}),
            structure=UNKNOWN,
        ),
    ),
    (
        "R1.1",
        "not-compared",  # ones and zeros show nothing
        job(
            *(replica_by_hand(r, **{f"start_digest/replicated/{b}": ([0], [0.0]) for b in "ab"}) for r in (0, 1)),
            structure=UNKNOWN,
        ),
    ),
    ("R1.1", "perhaps-sum", job(added_up(0), added_up(1), structure=UNKNOWN)),
    ("R1.1", "pass", job(added_up(0, norm=2.05), added_up(1, norm=2.05), structure=UNKNOWN)),
    ("R1.1", "pass", job(added_up(0, loss=0.5), added_up(1, loss=0.5), structure=UNKNOWN)),  # of all tokens
    ("R1.1", "pass", job(added_up(0), added_up(1))),  # DDP averages
    ("R1.1", "by-hook", job(at_some(0), at_some(1), structure={**ddp(), "hook": "mine"})),
    ("R1.1", "some-differ", job(forgotten(0, 7.0), forgotten(1, 7.0), structure=UNKNOWN)),
    ("R1.1", "not-applicable", job(forgotten(0, 7.0), forgotten(1, 8.0), structure=UNKNOWN)),  # split by hand
    ("R1.1", "not-applicable", job(stage(0), stage(1), structure=UNKNOWN)),
    (
        "R1.1",
        "perhaps-not-averaged",  # a process group of one rank
        job(replica_by_hand(0), replica_by_hand(1), structure=ddp(1)),
    ),
    ("R1.1", "not-applicable", job(stage(0), stage(1), structure=ddp(1))),
    ("R1.1", "not-reduced", job(waiting(3.0), waiting(3.0), structure=spread("fsdp"))),
    ("R1.1", "not-applicable", job(waiting(0.0), waiting(0.0), structure=spread("fsdp"))),
    ("R1.1", "other-batches", job(alone(0), alone(1), structure=ddp() | {"parallelism": "tensor-parallel"})),
    (
        "R1.1",
        "not-averaged",  # although the batches are the same
        job(*(alone(rank) | SAME for rank in (0, 1)), structure=ddp() | {"parallelism": "tensor-parallel"}),
    ),
    ("R1.2", "pass", job()),
    ("R1.2", "other-state", job({"start_state_digest": ([0], [0.0])}, OWN_STATE)),
    ("R1.2", "parted", job({"start_state_digest": ([0], [5.0])}, OWN_STATE)),
    ("R1.2", "pass", job(*({"start_state_digest": ([0], [5.0 + rank])} for rank in (0, 1)))),  # each keeps a part
    ("R1.2", "parted", job({}, {"parameter_digest/replicated": since(20)})),
    (
        "R1.2",
        "by-hook",
        job({}, {"parameter_digest/replicated": since(20)}, structure={**ddp(), "hook": "mine"}),
    ),
    ("R1.2", "pass", job({}, {"parameter_digest/replicated": digests(2, at_20=5.0)})),  # somebody mended it
    ("R1.2", "other-end", job({"end_digest/replicated": ([199], [1.0])}, {"end_digest/replicated": ([199], [2.0])})),
    ("R1.2", "pass", job(*all_of(**{"end_digest/replicated": ([199], [1.0])}))),
    ("R1.2", "pass", job({"end_digest/replicated": ([199], [1.0])}, {"end_digest/replicated": ([198], [2.0])})),
    ("R1.2", "pass", job({"end_digest/replicated": ([9], [1.0])}, {"end_digest/replicated": ([9], [2.0])})),  # resumed
    ("R1.2", "other-start", job({}, {"parameter_digest/replicated": since(0), "start_digest/replicated": ([0], [8])})),
    ("R1.2", "missing", job(*all_of(**{"parameter_digest/replicated": None}))),
    ("R1.2", "not-applicable", job(structure=spread("fsdp"))),
    ("R1.3", "pass", job()),
    ("R1.3", "rate", job({}, {"lr/0": np.full(200, 2e-3)})),
    ("R1.3", "loss-scale", job({"loss_scale": np.full(200, 1024.0)}, {"loss_scale": np.full(200, 512.0)})),
    ("R1.3", "skips", job({}, {"skipped": (STEPS % 50 == 49).astype(float)})),
    ("R1.3", "clip", job({}, {"clip_threshold": np.full(200, 0.5)})),
    ("R1.3", "clip", job({}, {"clipped": np.zeros(200)})),
    ("R1.3", "clip", job({}, {"clip_threshold": None, "clipped": None})),
    ("R1.3", "clip", job({}, {"gradient_digest/replicated": since(20, 1)})),
    ("R1.3", "mode", job({"training": np.ones(200)}, {"training": 1.0 * (STEPS < 50)})),
    ("R1.3", "pass", job(*({"training": 1.0 * (STEPS < 50)} for _ in (0, 1)))),
    ("R1.3", "optimizer", job(events={0: optimizer(0), 1: optimizer(1, weight_decay=0.1)})),
    ("R1.3", "pass", job(events={0: optimizer(0), 1: optimizer(1)})),
    ("R1.3", "pass", job(events={0: optimizer(0), 1: optimizer(1, parameters=3)})),  # the replicas agree
    (
        "R1.3",
        "optimizer",
        job({}, {"parameter_digest/replicated": since(20)}, events={0: optimizer(0), 1: optimizer(1, parameters=3)}),
    ),
    ("R1.3", "clip-early", job(clipped_early(0), clipped_early(1))),
    (
        "R1.3",
        "clip-early",  # now and then two norms are alike by chance
        job(*(clipped_early(rank) | {"clip_norm": 2.0 + 0.1 * rank * (STEPS % 20 > 0)} for rank in (0, 1))),
    ),
    ("R1.3", "pass", job(clipped_early(0, 0.0), clipped_early(1, 0.0))),
    ("R1.3", "pass", job(*(clipped_early(rank) | {"clipped": np.zeros(200)} for rank in (0, 1)))),
    ("R1.3", "missing", job(*all_of(**{"lr/0": None, "skipped": None}))),
    ("R1.3", "not-applicable", job(alone(0), alone(1), structure=UNKNOWN)),
    ("R1.4", "pass", job(events={0: validated(0, 1.0, 2.0), 1: validated(1, 1.0, 2.0)})),
    ("R1.4", "differ", job(events={0: validated(0, 1.0, 2.0), 1: validated(1, 1.0, 3.0)})),
    (
        "R1.4",
        "own",
        job(
            structure={**ddp(), "broadcast_buffers": True},
            events={0: validated(0, 1.0, 2.0), 1: validated(1, 1.0, 3.0)},
        ),
    ),
    ("R1.4", "not-applicable", job(events={0: validated(0, 1.0, 2.0)})),
    ("R1.4", "missing", job()),
    ("R1.5", "pass", job(sharded(0, 2**0.5), sharded(1, 2**0.5), structure=spread("fsdp"))),
    ("R1.5", "local-norm", job(sharded(0, 1.0), sharded(1, 1.0), structure=spread("fsdp"))),
    ("R1.5", "missing", job({}, {"local_grad_norm": None}, structure=spread("fsdp"))),
    ("R1.5", "not-applicable", job()),
    ("R1.6", "pass", job(sharded(0, 1.0), sharded(1, 1.0), structure=spread("tensor-parallel"))),
    ("R1.6", "equal", job(SAME_SHARDS, SAME_SHARDS, structure=spread("tensor-parallel"))),
    (
        "R1.6",
        "pass",  # zeros at first
        job(
            *(
                SAME_SHARDS
                | {"start_digest/sharded/up": ([0], [0.0]), "start_digest/sharded/down": ([0], [9.0 + rank])}
                for rank in (0, 1)
            ),
            structure=spread("tensor-parallel"),
        ),
    ),
    (
        "R1.6",
        "perhaps-equal",
        job(
            sharded(0, 1.0),
            sharded(1, 1.0) | {"start_digest/sharded/up": ([0], [5.0])},
            structure=spread("tensor-parallel"),
        ),
    ),
    ("R1.6", "missing", job(structure=spread("tensor-parallel"))),
    ("R1.6", "not-applicable", job()),
    ("R2.1", "pass", job()),
    ("R2.1", "pass", job(structure=spread("fsdp"))),
    ("R2.1", "perhaps-overlap", job({}, OVERLAPPING)),  # each sampler splits a dataset of its own
    ("R2.1", "pass", job({"examples": None}, OVERLAPPING | {"examples": None})),  # duplicates are not counted
    ("R2.1", "same", job(SAME_LOSS, SAME_LOSS, loaders=PLAIN)),
    ("R2.1", "same", job(SAME, SAME, loaders=PLAIN)),
    ("R2.1", "perhaps-same", job(SAME, SAME)),
    ("R2.1", "overlap", job(None, OVERLAPPING, loaders=({"seed": 0}, {"seed": 1}))),
    ("R2.1", "overlap", job(None, {"example_hash/train": healthy(0)["example_hash/train"]}, loaders=PLAIN)),
    ("R2.1", "perhaps-overlap", job(None, OVERLAPPING, loaders=PLAIN)),
    (
        "R2.1",
        "pass",  # the samplers split data in which duplicates lie side by side
        job(None, OVERLAPPING, loaders=[{"shuffles": False}] * 2),
    ),
    ("R2.1", "same", job(*all_of(**NO_BATCHES, loss=FALLING[:200], input_digest=digests(3)), loaders=PLAIN)),
    ("R2.1", "pass", job(*(NO_BATCHES | {"input_digest": digests(3 + rank)} for rank in (0, 1)), loaders=PLAIN)),
    ("R2.1", "missing", job(NO_BATCHES, NO_BATCHES)),
    ("R2.1", "not-applicable", job(SAME, SAME, structure=spread("tensor-parallel"))),
    ("R2.1", "same", job(SAME_LOSS, SAME_LOSS, loaders=PLAIN, structure={**spread("mixed"), "data": [0, 1]})),
    ("R2.1", "not-applicable", job(SAME_LOSS, SAME_LOSS, loaders=PLAIN, structure={**spread("mixed"), "data": [0]})),
    ("R2.1", "not-applicable", job(*all_of(batch_hash=np.ones(200)))),
    ("R2.2", "pass", job()),
    ("R2.2", "repeats", job(CYCLE, CYCLE)),
    ("R2.2", "not-applicable", job(CYCLE, CYCLE, loaders=[{"shuffles": False}] * 2)),
    ("R2.2", "missing", job(NO_BATCHES, NO_BATCHES)),
    ("R2.3", "pass", job()),
    ("R2.3", "uneven", job(loaders=({}, {"batches": 40}))),
    ("R2.3", "unequal", job(None, ENDED, loaders=({}, {"batches": 40}), events={0: [STUCK]})),
    (
        "R2.3",
        "unequal",
        job(
            *(dict.fromkeys(healthy(0)) | {"loss": FALLING[: 122 - 2 * rank]} for rank in range(2)), events={0: [STUCK]}
        ),
    ),
    ("R2.3", "missing", job(loaders=[{"batches": None}] * 2)),
    ("R2.3", "not-applicable", job(structure=spread("tensor-parallel"))),
    ("R3.1", "pass", job()),
    ("R3.1", "first", job({"loss": LATER}, {"loss": BROKEN})),
    ("R3.1", "together", job({"loss": BROKEN}, {"loss": BROKEN})),
    ("R3.1", "missing", job(*all_of(loss=None))),
    ("R3.1", "not-applicable", run()),
    ("R2.4", "pass", job()),
    ("R2.4", "pass", job(world=4)),
    ("R2.4", "losses", job({}, {"loss": FALLING[:200] * 1.5})),
    ("R2.4", "losses", job(None, None, None, LOWER, world=4, loaders=[{"num_replicas": 4}] * 4)),
    ("R2.4", "pass", job({}, {"loss": FALLING[:200] * np.where(STEPS < 50, 1.5, 1.0)})),  # one window
    ("R2.4", "pass", job({}, {"loss": FALLING[:200] * 1.05})),
    ("R2.4", "other", job({}, {"loss": FALLING[:200] * 1.5}, loaders=PLAIN)),  # a domain of its own, perhaps
    ("R2.4", "inputs", job(inputs(0.0), inputs(3.0))),
    ("R2.4", "inputs", job(inputs(0.0), inputs(0.0, 5.0))),
    ("R2.4", "pass", job(inputs(0.0), inputs(0.2))),
    ("R2.4", "missing", job(*({"loss": FALLING[:60] + rank} for rank in (0, 1)))),
    ("R2.4", "not-applicable", job(structure=spread("tensor-parallel"))),
]
