"""Small synthetic jobs for the questions to heartbeats and step times: which process is missing, and which is slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from synthetic import Synthetic

from steadyrun.records import Event
from steadyrun.store.flight_recorder import Collective, Trace
from steadyrun.store.heartbeats import Heartbeat
from steadyrun.store.ranks import Column, RankEvents

CLOSED = "Connection closed by peer [10.0.0.2]:50383"
LATE = "Timed out waiting 1800000ms for recv operation to complete"
STRUCTURE = {"parallelism": "ddp", "classes": {"replicated": {"replicas": [0, 1], "shards": [0]}}}


class Process:
    """One rank of a synthetic job; `ago` is the age of its heartbeat in seconds, None if it left none."""

    def __init__(
        self,
        *events: Event,
        step: int = 20,
        phase: str | None = "backward",
        ago: float | None = 1.0,
        ended: bool = False,
        skew: float = 0.0,
        columns: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self.given, self.step, self.phase, self.ago, self.ended = list(events), step, phase, ago, ended
        self.skew, self.columns = skew, columns or {}

    def beat(self, rank: int, world: int, now: float) -> Heartbeat | None:
        if self.ago is None:
            return None
        state, own = "ended" if self.ended else "running", now - self.ago + self.skew
        return Heartbeat(rank, world, f"h{rank}", 7, self.step, self.phase, own, own, 40.0, state, now - self.ago)


class Job(Synthetic):
    """A job of synthetic processes; a rank without one left no files."""

    def __init__(
        self, *processes: Process | None, traces: Mapping[int, Trace] | None = None, structure: Any = STRUCTURE
    ) -> None:
        self.world, self.traced, self.structure = len(processes), traces or {}, structure
        self.processes = {rank: process for rank, process in enumerate(processes) if process is not None}
        super().__init__(events=[self._process(0)])

    @property
    def by_rank(self) -> Job:
        return self

    @property
    def present(self) -> list[int]:
        return list(self.processes)

    def _process(self, rank: int) -> Event:
        return Event("process", None, 0.0, rank, {"rank": rank, "world": self.world, "host": f"h{rank}"})

    def events(self, kind: Any = None) -> Any:  # of one rank for the join, of a kind for rank 0's questions
        if not isinstance(kind, int):
            return super().events(kind)
        structure = Event("structure", None, 0.0, kind, self.structure)
        return RankEvents((self._process(kind), structure, *self.processes[kind].given))

    def columns(self, rank: int, _tables: Any, wanted: Callable[[str], bool], **_options: Any) -> dict[str, Column]:
        given = self.processes[rank].columns
        return {name: (np.arange(len(v)), np.asarray(v, float)) for name, v in given.items() if wanted(name)}

    def heartbeats(self) -> dict[int, Heartbeat]:
        now = time.time()
        beats = {rank: process.beat(rank, self.world, now) for rank, process in self.processes.items()}
        return {rank: beat for rank, beat in beats.items() if beat is not None}

    def traces(self) -> Mapping[int, Trace]:
        return self.traced


def failed(cause: str, message: str, step: int = 20, kind: str = "RuntimeError") -> Event:
    fields = {"cause": cause, "message": message, "type": kind, "operation": "backward"}
    return Event("process-failed", step, 0.0, 0, fields)


def stalled(phase: str | None, step: int = 20) -> Event:
    fields = {
        "phase": phase,
        "seconds": 31.0,
        "usual": 0.25,
        "stacks": "stacks/rank-00001.txt",
        "where": "data.py:7 in load",
    }
    return Event("stalled", step, 0.0, 0, fields)


def loader(batches: int) -> Event:
    return Event("loader", 0, 0.0, 0, {"batches": batches})


def went_on() -> Event:
    return Event("went-on", 20, 0.0, 0, {"seconds": 90.0})


def trace(rank: int, last: int) -> Trace:
    calls = tuple(Collective(number, "gloo:all_reduce", "[[8]]", False) for number in range(1, last + 1))
    return Trace(rank, {"0:default_pg": calls}, {})


def timed(data: float = 0.01, forward: float = 0.1, busy: float = 0.4, whole: float = 1.0, steps: int = 60) -> Process:
    """A process whose steps all take the same times; what is left of a step is waiting in the backward pass."""
    times = {"data": data, "forward": forward, "busy": busy, "update": 0.05}
    times["backward"] = whole - data - forward - 0.05
    columns = {f"time/{name}": [seconds] * steps for name, seconds in times.items()} | {"step_time": [whole] * steps}
    return Process(ended=True, columns=columns)


def without_busy(process: Process) -> Process:
    process.columns = {name: values for name, values in process.columns.items() if name != "time/busy"}
    return process


ENDED = Process(ended=True, phase="data")
ALIVE = Process()
PEER_LEFT = Process(failed("connection", CLOSED), ended=True)
SILENT = 1e4  # seconds

CASES: list[tuple[str, str, Synthetic]] = [
    ("R4.1", "not-applicable", Synthetic()),
    ("R4.1", "not-applicable", Job(Process(ago=None), Process(ago=None))),
    ("R4.1", "pass", Job(ENDED, ENDED)),
    ("R4.1", "pass", Job(ALIVE, Process(step=21, phase="data"))),
    ("R4.1", "pass", Job(ENDED, Process(step=20, phase="validation"))),  # the last evaluation, on one rank
    ("R4.1", "pass", Job(ALIVE, Process(stalled("data"), went_on()))),
    ("R4.1", "pass", Job(Process(stalled("data"), phase="data"), Process(stalled("data"), phase="data"))),  # checkpoint
    ("R4.1", "pass", Job(ENDED, Process(stalled("validation"), phase="validation"))),
    (
        "R4.1",
        "pass",
        Job(Process(failed("other", "x"), Event("process", None, 1.0, 0, {"world": 2})), ALIVE),
    ),  # resumed
    ("R4.1", "pass", Job(Process(skew=3600.0), Process(skew=-3600.0))),  # clocks differ
    ("R4.1", "failed", Job(PEER_LEFT, Process(failed("other", "bad label", kind="ValueError"), ended=True))),
    ("R4.1", "failed", Job(Process(ago=SILENT), Process(failed("out-of-memory", "CUDA out of memory"), ended=True))),
    ("R4.1", "failed", Job(PEER_LEFT, PEER_LEFT)),
    ("R4.1", "died", Job(PEER_LEFT, Process(step=18, ago=SILENT, skew=50.0))),
    ("R4.1", "died", Job(Process(ago=SILENT), Process(ago=SILENT + 400))),  # the rest was killed by its time-out
    ("R4.1", "killed", Job(ENDED, Process(ago=SILENT))),  # it did not close its run, and nobody waited for it
    ("R4.1", "killed", Job(Process(ago=SILENT, phase="validation"), Process(ago=SILENT + 400))),
    ("R4.1", "died", Job(Process(stalled("backward"), ago=SILENT), Process(ago=SILENT + 400, phase="data"))),
    ("R4.1", "ended-early", Job(Process(ended=True, step=18), Process(failed("connection", CLOSED), ended=True))),
    ("R4.1", "ended-early", Job(Process(ended=True, step=20), Process(stalled("backward")))),
    ("R4.1", "ended-early", Job(Process(loader(9), ended=True, step=20), Process(loader(9), stalled("backward")))),
    ("R4.1", "timed-out", Job(Process(failed("timeout", LATE), ended=True), Process(stalled("data"), phase="data"))),
    (
        "R4.1",
        "timed-out",  # the launcher ended it after the time-out of the other
        Job(Process(failed("timeout", LATE), ended=True, ago=SILENT), Process(phase="data", ago=SILENT)),
    ),
    ("R4.1", "died", Job(Process(failed("timeout", LATE), ended=True, ago=SILENT), Process(ago=SILENT + 38))),
    ("R4.1", "stalled", Job(Process(stalled("backward")), Process(stalled("data"), phase="data"))),
    ("R4.1", "stalled", Job(Process(stalled("backward")), Process(stalled("backward")))),
    ("R4.1", "stalled", Job(Process(stalled(None), phase=None), Process(step=19, phase=None))),
    ("R4.1", "stalled", Job(ALIVE, Process(ago=300.0))),
    ("R4.1", "missing", Job(Process(failed("timeout", LATE, step=0), ended=True, step=0), None)),
    ("R4.1", "killed", Job(Process(ago=SILENT), Process(ago=SILENT + 3))),
    ("R4.1", "unrecorded", Job(ENDED, None)),
    ("R4.2", "not-applicable", Synthetic()),
    ("R4.2", "not-applicable", Job(without_busy(timed()), without_busy(timed()))),
    ("R4.2", "missing", Job(timed(steps=15), timed(steps=15))),
    ("R4.2", "missing", Job(timed(), ENDED)),
    ("R4.2", "pass", Job(timed(), timed())),
    ("R4.2", "pass", Job(timed(), timed(data=0.1))),
    ("R4.2", "slow", Job(timed(), timed(data=0.5))),
    ("R4.2", "slow", Job(timed(busy=0.8), timed())),
    ("R4.2", "slow", Job(timed(), timed(forward=0.6))),
    (
        "R4.2",
        "pass",  # it waits for the buffers of rank 0
        Job(timed(), timed(forward=0.6), structure={**STRUCTURE, "broadcast_buffers": True}),
    ),
]
"""Question, expected answer, job."""
