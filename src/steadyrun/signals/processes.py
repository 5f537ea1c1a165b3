"""The processes of a job: which are alive, which ended and how, and which one the others wait for.

Clocks of different hosts are never compared with each other: a heartbeat's time is the time at which the shared file
system changed its file, unless the files were copied later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from steadyrun.records import Event
from steadyrun.signals.collectives import Waiting, waiting_for
from steadyrun.signals.rank_data import loader_number
from steadyrun.store.flight_recorder import Trace
from steadyrun.store.heartbeats import Heartbeat
from steadyrun.store.reader import process_is_gone

if TYPE_CHECKING:
    from steadyrun.signals.run_signals import Signals

_SYMPTOMS = ("timeout", "connection", "nccl")  # of a process whose peer did not answer
_PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Member:
    """One process of the job: its last heartbeat, the exception that ended it, the step in which it stalls."""

    rank: int
    beat: Heartbeat | None
    failure: Event | None = None
    stall: Event | None = None

    @property
    def cause(self) -> str:
        """The cause of its failure; empty if it did not fail."""
        return "" if self.failure is None else str(self.failure.fields.get("cause", "other"))

    @property
    def waited(self) -> bool:
        """Whether it failed because another process did not answer."""
        return self.cause in _SYMPTOMS

    @property
    def failed_by_itself(self) -> bool:
        return self.failure is not None and not self.waited

    @property
    def ended(self) -> bool:
        """Whether it came to its end without a failure."""
        return self.failure is None and self.beat is not None and self.beat.ended

    @property
    def open(self) -> bool:
        """Whether it neither ended nor failed, as far as its files show."""
        return self.failure is None and self.beat is not None and not self.beat.ended

    @property
    def in_a_pass(self) -> bool:
        """Whether it was last seen where it waits for others."""
        return self.beat is not None and self.beat.phase in _PASSES

    @property
    def stalls_in_a_pass(self) -> bool:
        """Whether it stalls where it waits for others; a long validation or checkpoint is its own."""
        return self.failure is None and self.stall is not None and self.stall.fields.get("phase") in _PASSES

    @cached_property
    def progress(self) -> tuple[int, int]:
        """How far it has come; if a step stalls, in that step, because it may have gone on to its end afterwards."""
        return (0, 0) if self.then is None else self.then.progress

    @cached_property
    def then(self) -> Heartbeat | None:
        """Its heartbeat, or what that was in the step that stalls."""
        if self.beat is None or self.stall is None:
            return self.beat
        return self.beat.in_phase(self.stall.step, self.stall.fields.get("phase"))

    @cached_property
    def gone(self) -> bool:
        """Whether its process is known to be gone: it ran on this host."""
        return self.beat is not None and process_is_gone({"host": self.beat.host, "pid": self.beat.pid})

    @property
    def step(self) -> int | None:
        """The step under way when it was last seen."""
        if self.failure is not None and self.failure.step is not None:
            return self.failure.step
        if self.stall is not None and self.stall.step is not None:
            return self.stall.step
        return None if self.beat is None else self.beat.step


@dataclass(frozen=True)
class Processes:
    """All processes of a job at the reader's time `now`; after `silent` seconds without a heartbeat one is gone."""

    members: tuple[Member, ...]
    world: int
    now: float
    silent: float
    traces: Mapping[int, Trace]
    batches: Mapping[int, int] = field(default_factory=dict)  # of the loaders that are known, by rank

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks without a heartbeat."""
        known = {member.rank for member in self.members if member.beat is not None}
        return tuple(rank for rank in range(self.world) if rank not in known)

    @cached_property
    def _copied(self) -> bool:
        """Whether every file is much younger than its content."""
        beats = [member.beat for member in self.members if member.beat is not None]
        return bool(beats) and all(beat.changed - beat.now > self.silent for beat in beats)

    def seen(self, member: Member) -> float:
        """When a process was last seen, by the one clock of the file system."""
        if member.beat is None:
            return 0.0
        return member.beat.now if self._copied else member.beat.changed

    @cached_property
    def last_seen(self) -> float:
        """When any process was last seen."""
        return max((self.seen(member) for member in self.members), default=0.0)

    def silence(self, member: Member) -> float:
        """Seconds from its last heartbeat to the newest of the others."""
        return self.last_seen - self.seen(member)

    def outlived(self, member: Member) -> bool:
        """Whether a process was still there when others gave up waiting for it: the launcher ended it afterwards."""
        waited = [m.beat.seconds_in_step for m in self.members if m.cause == "timeout" and m.beat is not None]
        return bool(waited) and self.silence(member) < max(waited) / 2

    @cached_property
    def alive(self) -> tuple[Member, ...]:
        """The processes that are still there: neither gone nor silent."""
        return tuple(
            member
            for member in self.members
            if member.open and not member.gone and self.now - self.seen(member) < self.silent and not self._copied
        )

    def waits(self, member: Member) -> bool:
        """Whether a process stalls in a pass, and another has come less far."""
        behind = (other.progress < member.progress for other in self.members if other.open)
        return member.stalls_in_a_pass and any(behind)

    def of(self, ranks: Iterable[int]) -> tuple[Member, ...]:
        wanted = set(ranks)
        return tuple(member for member in self.members if member.rank in wanted)

    @cached_property
    def waiting(self) -> Waiting | None:
        """The collective that some ranks have started and others have not, if there are traces."""
        return waiting_for(self.traces)


def processes_of(run: Signals, silent: float) -> Processes | None:
    """The processes of a run of several that left heartbeats; None otherwise."""
    if (ranks := run.ranks) is None:
        return None
    if ("processes", silent) not in run.memo:
        beats, traces = ranks.heartbeats(), ranks.traces()
        known = sorted({*ranks.present, *beats})
        members = tuple(
            Member(rank, beats.get(rank), ranks.of(rank).failure, ranks.of(rank).stall)
            for rank in known
            if rank < ranks.world
        )
        batches = {rank: count for rank in ranks.present if (count := loader_number(ranks, rank, "batches"))}
        job = Processes(members, ranks.world, time.time(), silent, traces, batches)
        run.memo["processes", silent] = job if beats else None
    processes: Processes | None = run.memo["processes", silent]
    return processes
