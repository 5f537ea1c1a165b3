"""The ranks of a job in words: state, last step and heartbeat of each, odd ones first, bounded for any number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from steadyrun.panels.panel import FAULT, SUSPECT, RankRow, RankSection
from steadyrun.panels.panel_findings import odd_ranks
from steadyrun.questions.ranks.r4_1_alive import QUESTION as ALIVE
from steadyrun.report.phrases import one_line
from steadyrun.report.report import Report
from steadyrun.signals.rank_states import FAILED, GONE, NO_FILES, NOT_CLOSED, STALLED, RankState, detailed, rank_states
from steadyrun.signals.ranks import Ranks, in_words
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, shown

MOST = 16  # rows
_EACH = 3  # ranks without files that have rows of their own
_KINDS = {NO_FILES: FAULT, FAILED: FAULT, GONE: FAULT, STALLED: SUSPECT, NOT_CLOSED: SUSPECT}


def rank_section(run: Signals, report: Report) -> RankSection | None:
    """The ranks of a job of several processes; None for one process."""
    if run.ranks is None:
        return None
    odd, kind = odd_ranks(report, run.ranks.world)
    silent = report.walk.limits.of(ALIVE)["silent"]
    states = rank_states(run, run.ranks, silent, odd)
    absent = [state.rank for state in states if state.state == NO_FILES]
    together = len(absent) > _EACH
    rows = [RankRow(in_words(absent), NO_FILES, kind=FAULT)] if together else []
    others = [state for state in states if state.state != NO_FILES] if together else states
    room = MOST - len(rows)
    rows += [_row(run.ranks, state, kind if state.rank in odd else "") for state in others[:room]]
    return RankSection(counted(run.ranks.world, "rank"), tuple(rows), len(others[room:]), _rest(others[room:]))


def _row(ranks: Ranks, state: RankState, kind: str) -> RankRow:
    known = detailed(ranks, state)
    since = "" if state.since is None else f" at step {state.since}"
    return RankRow(
        f"rank {state.rank}",
        f"{state.state}{since}",
        "" if known.step is None else str(known.step),
        "" if known.loss is None else shown(known.loss),
        "" if known.seconds is None else f"{shown(known.seconds)} s",
        "" if known.age is None else f"{known.age:.0f} s ago",
        one_line(state.host),
        _KINDS.get(state.state, kind),
    )


def _rest(states: Sequence[RankState]) -> str:
    """In words, such as "1,007 running, 1 ended; oldest heartbeat 6 s ago"."""
    counts = Counter(state.state for state in states)
    words = ", ".join(f"{count:,} {state}" for state, count in counts.items())
    ages = [state.age for state in states if state.age is not None]
    return f"{words}; oldest heartbeat {max(ages):.0f} s ago" if ages else words
