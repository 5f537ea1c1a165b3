"""One thread that writes what the training loop hands it, in order."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from steadyrun.program.torch_compat import compute_alone

Job = Callable[[], None]


class Worker:
    """Takes jobs and does them one after the other; a job that fails is reported and the next one is done."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._jobs: queue.SimpleQueue[tuple[Job, bool] | None] = queue.SimpleQueue()
        self._failed = failed
        self._open = self._owed = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        return self._open > 0

    @property
    def owes(self) -> bool:
        """Whether something is open that must be done, however long it takes."""
        return self._owed > 0

    def do(self, job: Job, *, owed: bool = True) -> None:
        with self._lock:
            self._open += 1
            self._owed += owed
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="steadyrun-incidents", daemon=True)
            self._thread.start()
        self._jobs.put((job, owed))

    def wait(self) -> None:
        """Until everything that was handed in is done."""
        if self._thread is not None:
            done = threading.Event()
            self.do(done.set)
            done.wait()

    def finish(self, seconds: float | None = None) -> bool:
        """End the thread when everything that was handed in is done, and wait for it; False if that takes longer."""
        if self._thread is None:
            return True
        self._jobs.put(None)
        self._thread.join(seconds)
        done = not self._thread.is_alive()
        self._thread = None
        return done

    def _work(self) -> None:
        compute_alone()
        while (entry := self._jobs.get()) is not None:
            job, owed = entry
            try:
                job()
            except Exception as problem:
                self._failed(problem)
            finally:
                with self._lock:
                    self._open -= 1
                    self._owed -= owed
