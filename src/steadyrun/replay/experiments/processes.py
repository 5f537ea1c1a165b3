"""Experiments shared by several processes on this machine."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from steadyrun.errors import UsageError
from steadyrun.replay.result import Replay
from steadyrun.replay.session import Record
from steadyrun.replay.experiments.factors import Factor, factors_for
from steadyrun.replay.experiments.experiment_table import FactorRow
from steadyrun.replay.experiments.attempt import ExperimentRunner, WindowPlan

_mine: dict[str, ExperimentRunner] = {}  # of a process that was started for it


def run_in_processes(result: Replay, steps: WindowPlan, usable: list[Factor], jobs: int) -> Iterator[FactorRow]:
    """The rows of `usable` in order. Each process builds the program itself, from the factory's name."""
    if result.factory_name is None:
        raise UsageError("several processes need the factory by its name: module:function")
    setting = (
        str(result.incident.run),
        result.incident.step,
        result.factory_name,
        steps,
        result.first_bad,
        result.raised,
        result.session.record,
    )
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(jobs, len(usable)), initializer=_begin, initargs=setting) as pool:
        yield from pool.imap(_row, [factor.name for factor in usable])


def _begin(
    run: str, step: int, factory: str, steps: WindowPlan, first_bad: int | None, raised: str, record: Record
) -> None:
    from steadyrun.replay.investigation import session_of
    from steadyrun.replay.incident import choose
    from steadyrun.replay.experiments.judge import IncidentJudge

    sys.stdout = sys.stderr  # what the program prints is no part of the output
    incident = choose(Path(run), step)
    session, _ = session_of(incident, factory, record)
    _mine["experiments"] = ExperimentRunner(session, IncidentJudge(incident, first_bad, raised), steps)


def _row(name: str) -> FactorRow:
    experiments = _mine["experiments"]
    every = [*factors_for(experiments.session, True)[0]]
    return experiments.run(next(factor for factor in every if factor.name == name))
