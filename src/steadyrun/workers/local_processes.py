"""Worker processes of this machine. Each runs many jobs and is replaced when it dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

from steadyrun.workers.job import UnguardedScriptError, WorkerDied
from steadyrun.workers.worker_process import work

_SPAWN = multiprocessing.get_context("spawn")
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LEAVING = 5.0  # seconds that an idle process has to exit
_NO_GUARD = 78  # exit status of a worker that runs the user's script instead of importing it


class LocalProcesses:
    """Up to `size` processes, started on demand. One thread per process waits for its answers."""

    def __init__(self, size: int) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            os._exit(_NO_GUARD)  # the parent prints what to do
        self.size = size
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="steadyrun-worker")
        self._lock = threading.Lock()
        self._all: list[_Process] = []
        self._idle: list[_Process] = []
        self._closed = False

    def begin(self, text: str) -> Future[str]:
        return self._threads.submit(self._do, text)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            every, idle = [*self._all], [*self._idle]
        for process in every:
            process.dismiss() if process in idle else process.kill()
        self._threads.shutdown()
        for process in every:
            process.join()

    def _do(self, text: str) -> str:
        process = self._taken()
        try:
            answer = process.do(text)
        except (WorkerDied, UnguardedScriptError):
            with self._lock:
                self._all.remove(process)
            raise
        with self._lock:
            self._idle.append(process)
        return answer

    def _taken(self) -> _Process:
        """An idle process or a new one, under a lock because starting one changes the environment briefly."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the crew is closed")
            while self._idle:
                process = self._idle.pop()
                if process.alive:
                    return process
                self._all.remove(process)
            process = _Process()
            self._all.append(process)
            return process


class _Process:
    def __init__(self) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=work, args=(theirs,), name="steadyrun-worker")
        with _environment(_ONE_THREAD):
            self._process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def do(self, text: str) -> str:
        try:
            self._pipe.send_bytes(text.encode())
            return self._pipe.recv_bytes().decode()
        except (EOFError, OSError):
            who = f"process {self._process.pid}"
            self.kill()  # with its own child processes
            self._process.join()
            if self._process.exitcode == _NO_GUARD:
                raise UnguardedScriptError(_script()) from None
            raise WorkerDied(who, _how(self._process.exitcode)) from None

    def kill(self) -> None:
        with suppress(ProcessLookupError, AttributeError):  # no process group yet, or none on this system
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()

    def dismiss(self) -> None:
        """Let the process exit by itself."""
        self._pipe.close()

    def join(self) -> None:
        self._process.join(_LEAVING)
        if self.alive:
            self.kill()
            self._process.join()
        self._pipe.close()


def _script() -> str:
    return getattr(sys.modules.get("__main__"), "__file__", None) or "the script"


def _how(code: int | None) -> str:
    if code is None:
        return "ended"
    return f"was killed (signal {-code})" if code < 0 else f"exited (code {code})"


@contextmanager
def _environment(names: dict[str, str]) -> Iterator[None]:
    """Set variables while a process starts, before it imports libraries that read them."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
