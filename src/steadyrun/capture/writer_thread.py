"""One thread that writes what the training loop hands it, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Worker:
    """Takes jobs and does them one after the other; a job that fails is reported and the next one is done."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._failed = failed
        self._open = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._open > 0

    def do(self, job: Job) -> None:
        with self._lock:
            self._open += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="steadyrun-incidents", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def wait(self) -> None:
        """Until everything that was handed in is done."""
        if self._thread is not None:
            done = threading.Event()
            self.do(done.set)
            done.wait()

    def finish(self) -> None:
        """Wait for everything that was handed in, and end the thread."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as problem:
                self._failed(problem)
            finally:
                with self._lock:
                    self._open -= 1
