"""A crew runs jobs, a few at a time, and yields the result of each as it ends."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from steadyrun.errors import UsageError
from steadyrun.workers.job import Done, Job, UnguardedScriptError, WorkerDied
from steadyrun.workers.job_execution import as_text, in_one_line, outcome, perform, surroundings
from steadyrun.workers.job_output import jobs_in_this_process

PLACES = "here, local, local:N, ray, ray:ADDRESS, slurm"


@contextmanager
def open_crew(on: str | Executor | None = None) -> Iterator[Crew]:
    """Open a crew for the body of a `with`; leaving it ends everything that it started.

    `on` selects the workers:

    - None or "here": this process, one job after the other, while the caller iterates over `finished()`
    - "local", "local:N": N processes of this machine, by default one per core that this process may use
    - "ray", "ray:ADDRESS": a Ray cluster, one CPU per job. Without an address it is the cluster of $RAY_ADDRESS, or a
      new one on this machine that ends with the crew
    - "slurm": one Slurm job each, through submitit. sbatch reads partition, account and time limit from
      SBATCH_PARTITION, SBATCH_ACCOUNT and SBATCH_TIMELIMIT. $STEADYRUN_SCRATCH is a folder that all nodes share
      (by default ~/.cache/steadyrun). "slurm:local" uses submitit's processes on this machine instead.
    - an executor of `concurrent.futures`, which stays open. Jobs that run in it at the end of the `with` continue.
    """
    with ExitStack() as stack:
        if on is None or on == "here" or isinstance(on, Executor):
            stack.enter_context(jobs_in_this_process())
        crew = _crew(on)
        stack.callback(crew.close)
        yield crew


def _crew(on: str | Executor | None) -> Crew:
    if on is None or on == "here":
        return CrewOfOne()
    if isinstance(on, Executor):
        from steadyrun.workers.given_executor import GivenExecutor

        return SpreadCrew(GivenExecutor(on), threads=None)
    kind, _, detail = on.partition(":")
    if kind == "local":
        from steadyrun.workers.local_processes import LocalProcesses

        return SpreadCrew(LocalProcesses(_number(on, detail)))
    if kind == "ray":
        from steadyrun.workers.ray_cluster import RayCluster

        return SpreadCrew(RayCluster(detail))
    if on in ("slurm", "slurm:local"):
        from steadyrun.workers.slurm_jobs import SlurmJobs

        return SpreadCrew(SlurmJobs(detail or "slurm"))
    raise UsageError(f"unknown workers {on!r}; choose one of: {PLACES}")


def _number(on: str, detail: str) -> int:
    """The number of local processes."""
    if not detail:
        affinity = getattr(os, "sched_getaffinity", None)  # not on every system
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if not detail.isdecimal() or int(detail) < 1:
        raise UsageError(f"{on!r}: the number of processes must be at least 1, as in local:4")
    return int(detail)


class Crew(ABC):
    """Runs jobs in the order of `start`, at most `size` at a time."""

    size: int = 1

    def __init__(self, threads: int | None) -> None:
        self._around = surroundings(threads)
        self._keys: set[str] = set()

    def start(self, job: Job) -> None:
        """Submit a job; returns immediately."""
        if job.key in self._keys:
            raise UsageError(f"the crew already has a job {job.key}; give each job its own key")
        text = as_text(job, self._around)
        self._keys.add(job.key)
        self._add(StartedJob(job, text))

    @abstractmethod
    def finished(self) -> Iterator[Done]:
        """Yield the jobs as they end, until none is left. More may be started meanwhile."""

    @abstractmethod
    def drop(self, key: str) -> bool:
        """Drop a job that has not begun; False if it has."""

    @abstractmethod
    def close(self) -> None:
        """End all jobs that were started."""

    @abstractmethod
    def _add(self, started: StartedJob) -> None: ...


@dataclass(frozen=True)
class StartedJob:
    """A job as text for a worker, and how its first worker died, if it did."""

    job: Job
    text: str
    died: WorkerDied | None = None


class CrewOfOne(Crew):
    """Runs jobs in this process, one after the other."""

    def __init__(self) -> None:
        super().__init__(threads=None)
        self._waiting: deque[StartedJob] = deque()

    def _add(self, started: StartedJob) -> None:
        self._waiting.append(started)

    def finished(self) -> Iterator[Done]:
        while self._waiting:
            started = self._waiting.popleft()
            yield outcome(started.job, perform(started.text))

    def drop(self, key: str) -> bool:
        return _removed(self._waiting, key)

    def close(self) -> None:
        self._waiting.clear()


class Place(Protocol):
    """A place that runs jobs, `size` at a time."""

    size: int

    def begin(self, text: str) -> Future[str]:
        """Run `perform(text)`. The future raises WorkerDied if another worker may retry it."""

    def close(self) -> None:
        """End all running jobs."""


class SpreadCrew(Crew):
    """Runs jobs in other processes. A thread hands them out, so that workers never wait for the caller."""

    def __init__(self, place: Place, threads: int | None = 1) -> None:
        super().__init__(threads)
        self._place, self.size = place, place.size
        self._waiting: deque[StartedJob] = deque()
        self._lock = threading.Lock()  # guards the waiting jobs; nothing is called while it is held
        self._running = 0
        self._left = 0  # started and not yet yielded
        self._ended: queue.SimpleQueue[Done | UnguardedScriptError | None] = queue.SimpleQueue()  # None: dropped
        self._todo: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._hand_out, name="steadyrun-crew", daemon=True)
        self._thread.start()

    def _add(self, started: StartedJob) -> None:
        with self._lock:
            self._left += 1
            self._waiting.append(started)
        self._todo.put(self._fill)

    def finished(self) -> Iterator[Done]:
        while self._left:
            done = self._ended.get()
            with self._lock:
                self._left -= 1
            if isinstance(done, UnguardedScriptError):
                raise done
            if done is not None:
                yield done

    def drop(self, key: str) -> bool:
        with self._lock:
            dropped = _removed(self._waiting, key)
        if dropped:
            self._ended.put(None)
        return dropped

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()
        self._todo.put(None)
        self._thread.join()
        self._place.close()

    # -- in the dispatching thread ----------------------------------------------------------------

    def _hand_out(self) -> None:
        while (step := self._todo.get()) is not None:
            step()

    def _fill(self) -> None:
        while self._running < self.size and (started := self._next()) is not None:
            self._running += 1
            began = time.perf_counter()
            try:
                future = self._place.begin(started.text)
            except Exception as problem:
                future = Future()
                future.set_exception(problem)
            future.add_done_callback(partial(self._came_back, started, began))

    def _next(self) -> StartedJob | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _came_back(self, started: StartedJob, began: float, future: Future[str]) -> None:
        """Runs in a thread of the place, which may hold locks: only queue the work for our thread."""
        self._todo.put(partial(self._settle, started, began, future))

    def _settle(self, started: StartedJob, began: float, future: Future[str]) -> None:
        self._running -= 1
        problem = CancelledError() if future.cancelled() else future.exception()
        if isinstance(problem, UnguardedScriptError):
            self._ended.put(problem)
        elif isinstance(problem, WorkerDied) and started.died is None:
            _say(f"job {started.job.key}: {problem}; another worker retries it")
            with self._lock:
                self._waiting.appendleft(replace(started, died=problem))
        else:
            self._ended.put(_done(started, future, problem, time.perf_counter() - began))
        self._fill()


def _done(started: StartedJob, future: Future[str], problem: BaseException | None, seconds: float) -> Done:
    retried = int(started.died is not None)
    if problem is None:
        return outcome(started.job, future.result(), retried)
    failure = in_one_line(problem)
    if isinstance(problem, WorkerDied) and started.died is not None:
        same = problem.how == started.died.how
        failure = f"its worker {problem.how} twice" if same else f"{started.died}; then {problem}"
    return Done(started.job, failure=failure, retried=retried, seconds=seconds)


def _removed(waiting: deque[StartedJob], key: str) -> bool:
    found = [started for started in waiting if started.job.key == key]
    for started in found:
        waiting.remove(started)
    return bool(found)


def _say(message: str) -> None:
    print(f"steadyrun: {message}", file=sys.stderr, flush=True)
