"""Which rank is behind in which collective, from the traces of torch's Flight Recorder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steadyrun.store.flight_recorder import Collective, Trace


@dataclass(frozen=True)
class Waiting:
    """A collective that some ranks of a process group have started, and others have not."""

    group: str
    collective: Collective
    behind: tuple[int, ...]  # the ranks that have not started it
    there: tuple[int, ...]  # the ranks that wait in it
    differs: bool = False  # all have started one of this number, but not the same one


def waiting_for(traces: Mapping[int, Trace]) -> Waiting | None:
    """The first collective of a process group in which ranks are apart; None if they are together."""
    names = {name: None for trace in traces.values() for name in trace.groups}
    found = [waiting for name in names if (waiting := _in_group(name, traces)) is not None]
    return next((waiting for waiting in found if waiting.behind), found[0] if found else None)


def _in_group(name: str, traces: Mapping[int, Trace]) -> Waiting | None:
    calls = {rank: {call.number: call for call in trace.groups.get(name, ())} for rank, trace in traces.items()}
    members = {rank for trace in traces.values() for rank in trace.members.get(name, ())}
    calls = {rank: by for rank, by in calls.items() if by or rank in members}
    if len(calls) < 2:
        return None
    last = {rank: max(by, default=0) for rank, by in calls.items()}
    number = min(last.values()) + 1
    there = tuple(rank for rank, at in last.items() if at >= number)
    if there and number in calls[there[0]]:
        behind = tuple(rank for rank in last if rank not in there)
        return Waiting(name, calls[there[0]][number], behind, there)
    return None if there else _different(name, calls)


def _different(name: str, calls: Mapping[int, Mapping[int, Collective]]) -> Waiting | None:
    """The first of the last collectives that is not the same on all ranks."""
    numbers = sorted(set.intersection(*(set(by) for by in calls.values())))
    for at in numbers:
        first = calls[min(calls)][at]
        odd = tuple(rank for rank, by in calls.items() if _form(by[at]) != _form(first))
        if odd:
            return Waiting(name, first, odd, tuple(rank for rank in calls if rank not in odd), differs=True)
    return None


def _form(collective: Collective) -> tuple[str, str]:
    """What must be the same on all ranks: the sizes only if every rank gives as much as it gets."""
    return collective.name, collective.sizes if collective.name.endswith("all_reduce") else ""
