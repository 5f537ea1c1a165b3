"""A job, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from steadyrun.errors import UsageError


@dataclass(frozen=True)
class Job:
    """A call of `function(**arguments)`. Arguments and result are JSON."""

    key: str  # names it in messages; unique in its crew
    function: str  # "module:function", imported by the worker
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A job that has ended: with its `result`, or with a `failure`."""

    job: Job
    result: Any = None
    failure: str = ""  # one line: what it raised and where, or how its worker died
    retried: int = 0  # how often its worker died before
    seconds: float = 0.0


class WorkerDied(Exception):  # noqa: N818  an event of the outside world
    """A worker ended in the middle of a job: `who` it was, and `how` it ended, such as "was killed (signal 9)"."""

    def __init__(self, who: str, how: str) -> None:
        super().__init__(f"its worker ({who}) {how}")
        self.who, self.how = who, how


class UnguardedScriptError(UsageError):
    """A worker that imports the user's script, as `multiprocessing` makes it, would do all of its work again."""

    def __init__(self, script: str) -> None:
        super().__init__(
            f"a worker process imports {script} again, which starts the same work there: put what starts it under "
            'if __name__ == "__main__":'
        )
