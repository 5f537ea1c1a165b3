"""Threads for work that would block the server. They end with the process."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Workers:
    """A few daemon threads. Python waits for those of concurrent.futures at exit, which would delay Ctrl-C."""

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for _ in range(count):
            threading.Thread(target=self._work, name="steadyrun-live", daemon=True).start()

    async def do(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """The result of a function, from one of the threads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def settle(result: _Result | None, problem: BaseException | None) -> None:
            if future.done():  # the caller no longer waits
                return
            if problem is not None:
                future.set_exception(problem)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def task() -> None:
            try:
                outcome = (function(*arguments), None)
            except Exception as problem:
                _tell(loop, settle, None, problem)
            else:
                _tell(loop, settle, *outcome)

        self._tasks.put(task)
        return await future

    def _work(self) -> None:
        while True:
            self._tasks.get()()


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], *outcome: object) -> None:
    with contextlib.suppress(RuntimeError):  # the server has stopped
        loop.call_soon_threadsafe(settle, *outcome)
