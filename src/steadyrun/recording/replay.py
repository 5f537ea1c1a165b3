"""`steadyrun.replay`: what imports torch is imported when it is called."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from steadyrun.replay.result import Replay

if TYPE_CHECKING:
    from steadyrun.program.task import Factory
    from steadyrun.replay.window import OnStep


def replay(
    run: str | os.PathLike[str],
    factory: Factory | str | None = None,
    *,
    step: int | None = None,
    threads: int | None = None,
    until: int | None = None,
    on_step: OnStep | None = None,
    hunting: bool = True,
) -> Replay:
    """Execute an incident of a run again: the gravest one, or the one at `step`.

    `factory` builds the program: a function that returns a `steadyrun.Task` (it is given the run's configuration if it
    takes an argument), or its name as "module:function". Runs of the tutor need none. `threads` overrides the number
    that the run used; `until` ends the window; without `hunting` the first non-finite operation is not looked for.
    """
    from steadyrun.program.tensor_files import require_safetensors

    require_safetensors()
    from steadyrun.recording.record import record
    from steadyrun.replay.investigation import execute

    return execute(
        run, factory, step=step, threads=threads, until=until, on_step=on_step, hunting=hunting, record=record
    )
