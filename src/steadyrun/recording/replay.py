"""`steadyrun.replay`: what imports torch is imported when it is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from steadyrun.program.task import Task
from steadyrun.renamed_arguments import renamed
from steadyrun.replay.result import Replay

if TYPE_CHECKING:
    from steadyrun.program.task import Factory
    from steadyrun.replay.repetitions import OnStep


@renamed(factory="task")
def replay(
    run: str | os.PathLike[str],
    task: Task | Factory | str | None = None,
    *,
    step: int | None = None,
    threads: int | None = None,
    until: int | None = None,
    on_step: OnStep | None = None,
    hunting: bool = True,
    repeat: int = 3,
    rank: int | None = None,
) -> Replay:
    """Re-run an incident of a run: the gravest one, or the one at `step`.

    `task` is a `steadyrun.Task`, which is restored bit for bit, or a function that builds one (it gets the run's config
    if it takes an argument), or its name as "module:function". Runs of the tutor need none. `threads` overrides the
    number of CPU threads that the run used. `until` is the last step to execute. `on_step` is called after each step.
    `hunting=False` skips the search for the first non-finite operation. `repeat` is how often the window runs, which
    separates hardware from software. `rank` chooses the part of one rank, if the run has several processes.
    """
    from steadyrun.program.tensor_files import require_safetensors

    require_safetensors()
    from steadyrun.recording.record import record
    from steadyrun.replay.investigation import checked_times, execute
    from steadyrun.replay.session import replay_task

    if isinstance(task, Task):
        threaded = {} if threads is None else {"threads": threads}
        folder = Path(run).expanduser()
        options = {"until": until, "on_step": on_step, "hunting": hunting, "repeat": repeat, "rank": rank}
        return replay_task(folder, task, step, record, **options, **threaded)
    return execute(
        run,
        task,
        step=step,
        threads=threads,
        until=until,
        on_step=on_step,
        hunting=hunting,
        times=checked_times(repeat),
        rank=rank,
        record=record,
    )
