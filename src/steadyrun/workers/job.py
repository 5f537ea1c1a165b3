"""A job and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from steadyrun.errors import UsageError


@dataclass(frozen=True)
class Job:
    """A call of `function(**arguments)`. Arguments and result are JSON."""

    key: str  # its name in messages; unique within a crew
    function: str  # "module:function", imported by the worker
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A finished job, with its `result` or its `failure`."""

    job: Job
    result: Any = None
    failure: str = ""  # one line: the exception and its file and line, or how the worker died
    retried: int = 0  # how often its worker died
    seconds: float = 0.0


class WorkerDied(Exception):  # noqa: N818  an event, not an error of ours
    """A worker ended during a job: `who` it was, and `how` it ended, such as "was killed (signal 9)"."""

    def __init__(self, who: str, how: str) -> None:
        super().__init__(f"its worker ({who}) {how}")
        self.who, self.how = who, how


class UnguardedScriptError(UsageError):
    """The user's script has no main guard, so a `multiprocessing` worker that imports it repeats its work."""

    def __init__(self, script: str) -> None:
        super().__init__(
            f"a worker process imports {script}, which starts the same work again: move the code that starts it under "
            'if __name__ == "__main__":'
        )
