"""Preflight as one of several ranks under torchrun: rank 0 prints, and all ranks exit with the same code."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrun.cli import output
from steadyrun.cli.messages import say
from steadyrun.errors import UsageError

if TYPE_CHECKING:
    from steadyrun.preflight.rank_group import RankGroup
    from steadyrun.program.task import Task
    from steadyrun.report import Report

_SHOWN = 4  # ranks whose problem is printed


def is_one_of_several() -> bool:
    """Whether a launcher started this process as one rank of several."""
    world = os.environ.get("WORLD_SIZE", "1")
    return world.isdecimal() and int(world) > 1 and "RANK" in os.environ


def launched() -> str:
    """What to type to start as many ranks on this machine again."""
    local = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
    return f"torchrun --nproc-per-node {local} -m steadyrun"


def built(factory: str, config: dict[str, Any] | None) -> Task:
    """The task that the factory builds, with the config of the command line."""
    from steadyrun.program.task import build_task, load_factory

    task = build_task(load_factory(factory, "preflight's argument"), config or {}, factory)
    if config is not None:
        task.config = {**(task.config or {}), **config}
    if task.loader is None:
        raise UsageError(f"{factory} returns a Task without a loader: set loader=… in steadyrun.Task")
    return task


def on_ranks(
    factory: str, config: dict[str, Any] | None, only: list[str], assigned: list[str], timeout: float, again: str
) -> tuple[Report, RankGroup]:
    """Try the program together with the other ranks. A failure of one of them ends all."""
    from steadyrun.preflight.rank_group import RankGroup, Watch, make_group
    from steadyrun.report.limits import parsed
    from steadyrun.report.preflight import run_on_ranks

    watch = Watch(timeout, _show)
    try:
        thresholds = parsed(assigned)
        try:
            task, made = built(factory, config), False
        except Exception as problem:
            if not (made := make_group(problem, timeout)):
                raise
            task = built(factory, config)
        group = RankGroup(watch, timeout, made=made)
        return run_on_ranks(task, group, name=factory, again=again, only=only, thresholds=thresholds), group
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        watch.fail(_described(problem))
        raise


def told_by_rank_0(form: str, report: Report, group: RankGroup) -> int:
    """Print the report once, and leave together with the other ranks; the exit code of all."""
    if group.rank == 0:
        output.tell(form, report, None)
    code = group.gather(report.exit_code)[0]
    group.close()
    return code


def _show(problems: list[str]) -> None:
    """Print what ended the ranks."""
    for problem in problems[:_SHOWN]:
        say(f"error: {problem}")
    more = f"; {len(problems) - _SHOWN} more ranks report a problem" if len(problems) > _SHOWN else ""
    say(f"  preflight stopped on all ranks{more}")


def _described(problem: BaseException) -> str:
    if isinstance(problem, UsageError):
        return str(problem)
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__}: {problem} ({Path(last.filename).name}:{last.lineno})"
