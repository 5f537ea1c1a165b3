"""A `concurrent.futures` executor that the user opens and closes."""

from __future__ import annotations

from concurrent.futures import Executor, Future

from steadyrun.workers.job_execution import perform

_AT_ONCE = 4  # if the executor has no known number of workers


class GivenExecutor:
    """Runs jobs in an executor. If it breaks, its jobs fail, because only its owner can open another."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.size = int(getattr(executor, "_max_workers", None) or _AT_ONCE)
        self._begun: set[Future[str]] = set()

    def begin(self, text: str) -> Future[str]:
        future = self._executor.submit(perform, text)
        self._begun.add(future)
        future.add_done_callback(self._begun.discard)
        return future

    def close(self) -> None:
        for future in [*self._begun]:
            future.cancel()
