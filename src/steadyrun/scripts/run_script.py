"""`run_script`: a training script in this process, recorded without an edit, and its report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadyrun.scripts.main_module import Ending, Target, execute

OFF = "STEADYRUN"
"""The environment variable: `STEADYRUN=off` runs the script and nothing else."""


@dataclass(frozen=True)
class RunOptions:
    """What `steadyrun run` was given besides the script and its arguments."""

    folder: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    loss: str | None = None
    resume: bool = False
    live_page: bool = False
    program: str = "steadyrun"  # as typed, for the commands that the report shows


def switched_off() -> bool:
    """Whether the environment switches recording off."""
    return os.environ.get(OFF, "").lower() in {"off", "0", "false", "no"}


def run_script(target: Target, arguments: list[str], options: RunOptions) -> Ending:
    """Run the script as `__main__` to its end, record its training and print the report on stderr."""
    if switched_off():
        return execute(target, arguments)
    from steadyrun.scripts.script_session import Session

    session = Session(target, options)
    pid = os.getpid()
    with session:
        ending = execute(target, arguments)
        if os.getpid() != pid:  # a forked child that came to the end of the script: nothing of this is its own
            session.leave_alone()
            return ending
        session.ended(ending)
    return ending
