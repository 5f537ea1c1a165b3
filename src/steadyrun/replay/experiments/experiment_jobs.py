"""Experiments distributed over several local processes."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from steadyrun.errors import UsageError
from steadyrun.replay.experiments.attempt import ExperimentRunner, WindowPlan, untested
from steadyrun.replay.experiments.factors import Factor, factors_for
from steadyrun.replay.experiments.judge import IncidentJudge
from steadyrun.replay.experiments.verdict import FactorRow
from steadyrun.replay.result import Replay
from steadyrun.workers import Done, Job, open_crew


def run_in_processes(result: Replay, steps: WindowPlan, usable: list[Factor], jobs: int) -> Iterator[FactorRow]:
    """The rows of `usable` in order. Each process builds the program from the factory's name."""
    setting = _setting(result, steps)
    ended: dict[str, Done] = {}
    left = [*usable]
    with open_crew(f"local:{min(jobs, len(usable))}") as crew:
        for factor in usable:
            crew.start(Job(factor.name, f"{__name__}:row_of", {"setting": setting, "name": factor.name}))
        for done in crew.finished():
            ended[done.job.key] = done
            while left and left[0].name in ended:
                factor = left.pop(0)
                yield _row(factor, ended[factor.name])


def _setting(result: Replay, steps: WindowPlan) -> str:
    """Everything a process needs to rebuild the session of `result`, as JSON."""
    if result.factory_name is None:
        raise UsageError("--jobs needs a factory that other processes can import: give it as module:function")
    record = result.session.record
    return json.dumps(
        {
            "run": str(result.incident.run),
            "step": result.incident.step,
            "rank": result.incident.rank,
            "factory": result.factory_name,
            "record": f"{record.__module__}:{record.__name__}",
            "steps": asdict(steps),
            "first_bad": result.first_bad,
            "raised": result.raised,
            "threads": torch.get_num_threads(),
        }
    )


def _row(factor: Factor, done: Done) -> FactorRow:
    if done.failure:
        return untested(factor, done.failure)
    starts, before = tuple(done.result["starts"]), tuple(done.result["before"])
    return FactorRow(**done.result | {"starts": starts, "before": before})


# In the processes.


def row_of(setting: str, name: str) -> dict[str, Any]:
    """Compute one row. Each process builds the session once and reuses it for all its rows."""
    torch.set_num_threads(json.loads(setting)["threads"])
    experiments = _experiments(setting)
    every = factors_for(experiments.session, True)[0]
    return asdict(experiments.run(next(factor for factor in every if factor.name == name)))


@lru_cache(maxsize=1)
def _experiments(setting: str) -> ExperimentRunner:
    from steadyrun.replay.incident import choose
    from steadyrun.replay.investigation import session_of

    given = json.loads(setting)
    module, _, name = given["record"].partition(":")
    record = getattr(importlib.import_module(module), name)
    incident = choose(Path(given["run"]), given["step"], given["rank"])
    session, _ = session_of(incident, given["factory"], record, given["threads"])
    judge = IncidentJudge(incident, given["first_bad"], given["raised"])
    steps = WindowPlan(**given["steps"] | {"starts": tuple(given["steps"]["starts"])})
    return ExperimentRunner(session, judge, steps)
