"""What is known of each rank of a job: how far it is, whether it ended, failed, stalled or never wrote a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from steadyrun.signals.rank_spread import rank_series
from steadyrun.signals.ranks import Ranks
from steadyrun.store.heartbeats import Heartbeat

NO_FILES, FAILED, STALLED, NOT_CLOSED, RUNNING, ENDED = (
    "no files",
    "failed",
    "stalled",
    "not closed",
    "running",
    "ended",
)
_GRAVITY = (NO_FILES, FAILED, STALLED, NOT_CLOSED, RUNNING, ENDED)
_STOPPED = {"process-failed": FAILED, "crash": FAILED, "stalled": STALLED}
_PHASES = ("time/data", "time/forward", "time/backward", "time/update")
_LAST = 100  # steps


@dataclass(frozen=True)
class RankState:
    """One rank: `since` is the step at which it failed or stalled, `age` the seconds since its last heartbeat.

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


def rank_states(
    ranks: Ranks, beats: Mapping[int, Heartbeat], *, running: bool, odd: Collection[int] = ()
) -> list[RankState]:
    """All ranks: without files, failed, stalled; then `odd` ones; then those that are farthest back."""
    states = [RankState(rank, NO_FILES) for rank in ranks.missing]
    states += [_known(ranks, rank, beats.get(rank), running) for rank in ranks.present]
    return sorted(states, key=lambda each: _order(each, odd))


def _known(ranks: Ranks, rank: int, beat: Heartbeat | None, running: bool) -> RankState:
    facts = ranks.of(rank)
    stopped, since = facts.stopped
    ended = facts.closed or (beat is not None and beat.ended)
    age = None if beat is None or ended or not running else beat.age()
    state = _STOPPED.get(stopped) or (ENDED if ended else RUNNING if running else NOT_CLOSED)
    return RankState(rank, state, facts.host, ranks.last_step(rank), since, age)


def _order(each: RankState, odd: Collection[int]) -> tuple[int, bool, int, int]:
    return _GRAVITY.index(each.state), each.rank not in odd, -1 if each.step is None else each.step, each.rank


def detailed(ranks: Ranks, state: RankState) -> RankState:
    """The state with the rank's last step and loss, and the duration of a usual step, from all of its rows."""
    losses = rank_series(ranks, state.rank, "loss")
    if losses is None:
        return state
    return replace(
        state, step=int(losses.steps[-1]), loss=float(losses.values[-1]), seconds=_step_seconds(ranks, state.rank)
    )


def _step_seconds(ranks: Ranks, rank: int) -> float | None:
    """The median duration of the last steps; None if the phases of steps were not recorded."""
    phases = [series.values[-_LAST:] for name in _PHASES if (series := rank_series(ranks, rank, name)) is not None]
    usual = [float(np.median(finite)) for values in phases if len(finite := values[np.isfinite(values)])]
    return sum(usual) if usual else None
