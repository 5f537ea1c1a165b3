"""What is known of each rank of a job: how far it is, whether it ended, failed, stalled or never wrote a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from steadyrun.signals.processes import Member, Processes, processes_of
from steadyrun.signals.rank_spread import rank_series
from steadyrun.signals.ranks import Ranks
from steadyrun.signals.run_signals import Signals

NO_FILES, FAILED, GONE, STALLED, WAITING = "no files", "failed", "gone", "stalled", "waiting"
NOT_CLOSED, RUNNING, ENDED = "not closed", "running", "ended"
_GRAVITY = (NO_FILES, FAILED, GONE, STALLED, WAITING, NOT_CLOSED, RUNNING, ENDED)
_LAST_STEPS = 100  # whose median is the usual duration


@dataclass(frozen=True)
class RankState:
    """One rank: `since` is the step at which it failed, stalled or waits, `age` the seconds since its last heartbeat.

    `loss` is its last one and `seconds` the duration of a usual step; only `detailed` reads them.
    """

    rank: int
    state: str
    host: str = ""
    step: int | None = None
    since: int | None = None
    age: float | None = None
    loss: float | None = None
    seconds: float | None = None


def rank_states(run: Signals, ranks: Ranks, silent: float, odd: Collection[int] = ()) -> list[RankState]:
    """All ranks: without files, failed, gone, stalled; then `odd` ones; then those that are farthest back.

    A process without a heartbeat for `silent` seconds is gone.
    """
    job = processes_of(run, silent)
    members: Mapping[int, Member] = {} if job is None else {member.rank: member for member in job.members}
    states = []
    for rank in range(ranks.world):
        member = members.get(rank) or Member(rank, None, ranks.of(rank).failure, ranks.of(rank).stall)
        if rank in members or rank in ranks.present:
            states.append(_known(run, ranks, member, job))
        else:
            states.append(RankState(rank, NO_FILES))
    return sorted(states, key=lambda each: _order(each, odd))


def _known(run: Signals, ranks: Ranks, member: Member, job: Processes | None) -> RankState:
    facts, step = ranks.of(member.rank), ranks.last_step(member.rank)
    state = _state(member, facts.closed, run.running)
    state = WAITING if state == STALLED and job is not None and job.waits(member) else state
    since = member.step if state in {FAILED, GONE, STALLED, WAITING} else None
    age = max(0.0, job.now - job.seen(member)) if job and member.beat and run.running and state != ENDED else None
    host = facts.host or (member.beat.host if member.beat else "")
    return RankState(member.rank, state, host, step, since, age)


def _state(member: Member, closed: bool, running: bool) -> str:
    if member.failure is not None:
        return FAILED
    if closed or member.ended:
        return ENDED
    if member.gone:
        return GONE
    if member.stall is not None:
        return STALLED
    return RUNNING if running else NOT_CLOSED


def _order(each: RankState, odd: Collection[int]) -> tuple[int, bool, int, int]:
    return _GRAVITY.index(each.state), each.rank not in odd, -1 if each.step is None else each.step, each.rank


def detailed(ranks: Ranks, state: RankState) -> RankState:
    """The state with the rank's last step and loss, and the duration of a usual step, from all of its rows."""
    losses, times = rank_series(ranks, state.rank, "loss"), rank_series(ranks, state.rank, "step_time")
    usual = None if times is None else times.values[-_LAST_STEPS:][np.isfinite(times.values[-_LAST_STEPS:])]
    return replace(
        state,
        step=state.step if losses is None else int(losses.steps[-1]),
        loss=None if losses is None else float(losses.values[-1]),
        seconds=float(np.median(usual)) if usual is not None and len(usual) else None,
    )
