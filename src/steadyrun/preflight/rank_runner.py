"""Run the probes for several ranks: all ranks execute one trial, then each asks the same questions about it."""

from __future__ import annotations

from collections.abc import Mapping

from steadyrun.preflight.rank_group import RankGroup
from steadyrun.preflight.rank_trial import rank_trial
from steadyrun.preflight.runner import eager
from steadyrun.program.program_state import ProgramState
from steadyrun.program.task import Task
from steadyrun.questions.form import Question
from steadyrun.signals.missing import MissingSignal
from steadyrun.trees.walker import Changes, Walk, walk


def tried_on_ranks(task: Task, group: RankGroup, probes: Mapping[str, Question], changes: Changes) -> Walk:
    """Run every probe on all ranks, and restore the task of each bit for bit."""
    state = group.everywhere("reading the model", lambda: ProgramState(task))
    try:
        with eager(task):
            trial = rank_trial(task, group)
    finally:
        state.put_back()
    group.everywhere("restoring the program", lambda: _as_before(state))
    return walk(probes, trial, changes, go_on=True)


def _as_before(state: ProgramState) -> None:
    if differences := state.differences():
        found = "; ".join(differences[:3])
        why = f"preflight could not restore the program: {found}; build the task again before you train"
        raise MissingSignal("the program", why)
