"""Workers on a Ray cluster: a given one, or a new one on this machine."""

from __future__ import annotations

import logging
import os
import socket
from concurrent.futures import Future
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.workers.job import WorkerDied
from steadyrun.workers.job_execution import perform

_SECONDS = 10.0  # timeout for the cluster's answer


class RayCluster:
    """Runs jobs on Ray, one CPU each. A cluster that was already connected stays connected."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError('workers on Ray need the package ray: pip install "steadyrun[ray]"') from None
        self._ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(ray, address or os.environ.get("RAY_ADDRESS", ""))
        self.size = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._perform = ray.remote(num_cpus=1, max_retries=0)(perform)
        self._running: set[Any] = set()

    def begin(self, text: str) -> Future[str]:
        reference = self._perform.remote(text)
        self._running.add(reference)
        answer: Future[str] = Future()
        reference.future().add_done_callback(lambda given: self._answer(reference, given, answer))
        return answer

    def close(self) -> None:
        for reference in [*self._running]:
            self._ray.cancel(reference, force=True)
        if self._ours:
            self._ray.shutdown()

    def _answer(self, reference: Any, given: Future[str], answer: Future[str]) -> None:
        self._running.discard(reference)
        problem = given.exception()
        if problem is None:
            answer.set_result(given.result())
        else:
            answer.set_exception(self._died(problem) or problem)

    def _died(self, problem: BaseException) -> WorkerDied | None:
        """The death of a worker if Ray itself raised; `perform` raises only if its import fails there."""
        errors = self._ray.exceptions
        if isinstance(problem, errors.RayTaskError) or not isinstance(problem, errors.RayError):
            return None
        return WorkerDied("of Ray", f"died ({type(problem).__name__})")


def _connect(ray: Any, address: str) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        _require_answer(address)
        ray.init(address=address, **quiet)
    else:
        ray.init(address="local", num_cpus=os.cpu_count(), include_dashboard=False, **quiet)


def _require_answer(address: str) -> None:
    """Fail early without an answer, because Ray retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():  # such as "auto"
        return
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except OSError as problem:
        raise UsageError(
            f"no Ray cluster answers at {address} ({problem}); check the address, or start one with ray start --head"
        ) from problem
