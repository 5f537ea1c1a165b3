"""Workers under Slurm, through submitit: one Slurm job per job."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.workers.job import WorkerDied
from steadyrun.workers.job_execution import perform

_AT_ONCE = 64
_MINUTES = 60  # time limit of a job without SBATCH_TIMELIMIT
_EVERY = 0.1  # seconds between polls for an answer; submitit polls Slurm less often
_LEAVING = 5.0  # seconds that a process of submitit's local executor has to end


class SlurmJobs:
    """Runs at most 64 Slurm jobs at once, each with one CPU.

    sbatch reads all other settings from its variables, which override submitit's: SBATCH_PARTITION, SBATCH_ACCOUNT,
    SBATCH_TIMELIMIT (one hour by default). submitit's files are in a temporary folder that all nodes must share:
    $STEADYRUN_SCRATCH, or ~/.cache/steadyrun.
    """

    def __init__(self, cluster: str) -> None:
        try:
            import submitit
        except ImportError:
            raise UsageError(
                'workers under Slurm need the package submitit: pip install "steadyrun[submitit]"'
            ) from None
        self._local = cluster == "local"
        self.size = (os.cpu_count() or 1) if self._local else _AT_ONCE
        self._uncompleted = submitit.core.utils.UncompletedJobError
        self._folder = _scratch(cluster)
        try:
            self._executor = submitit.AutoExecutor(folder=self._folder, cluster=cluster)
        except RuntimeError as problem:  # no sbatch on this machine
            shutil.rmtree(self._folder, ignore_errors=True)
            raise UsageError(
                f"Slurm is not available here: {problem}; use a machine with sbatch, or local workers"
            ) from problem
        self._executor.update_parameters(name="steadyrun", timeout_min=_MINUTES, cpus_per_task=1)
        self._threads = ThreadPoolExecutor(self.size, thread_name_prefix="steadyrun-slurm")
        self._closed, self._lock = threading.Event(), threading.Lock()

    def begin(self, text: str) -> Future[str]:
        return self._threads.submit(self._do, text)

    def close(self) -> None:
        self._closed.set()
        self._threads.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, text: str) -> str:
        with self._lock:
            if self._closed.is_set():
                raise RuntimeError("the crew is closed")
            job = self._executor.submit(perform, text)
        while not job.done():
            if self._closed.wait(_EVERY):
                self._cancel(job)
                raise RuntimeError("the crew is closed")
        try:
            return str(job.result())
        except self._uncompleted:
            raise WorkerDied(f"job {job.job_id} of submitit", f"ended without an answer ({job.state})") from None

    def _cancel(self, job: Any) -> None:
        """Cancel a job; wait for a local process only, because Slurm confirms late."""
        with suppress(OSError):
            job.cancel(check=False)
        until = time.monotonic() + _LEAVING
        while self._local and not job.done() and time.monotonic() < until:
            time.sleep(_EVERY)


def _scratch(cluster: str) -> Path:
    """A new temporary folder that all nodes share, unlike the system's own."""
    base = os.environ.get("STEADYRUN_SCRATCH") or ("" if cluster == "local" else "~/.cache/steadyrun")
    if not base:
        return Path(tempfile.mkdtemp(prefix="steadyrun-jobs-"))
    folder = Path(base).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="jobs-", dir=folder))
