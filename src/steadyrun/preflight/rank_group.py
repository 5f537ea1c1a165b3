"""The ranks of a preflight: their group, what they exchange, and a watch that ends all of them when one fails."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from steadyrun.errors import UsageError
from steadyrun.signals.missing import MissingSignal

T = TypeVar("T")

SECONDS = 600.0  # that a stage may last
_LOOK, _GRACE, _REPORTED = (
    0.2,
    1.0,
    10.0,
)  # seconds between two looks, until all failures are there, until they are shown
_FAILED = 2  # exit code
_NO_GROUP = "Default process group has not been initialized"  # what torch's exception says
_LATE = "has not finished"


class Watch:
    """Ends every rank when one fails or a stage lasts too long; rank 0 shows what happened, with ranks.

    A rank that waits for another within torch cannot be interrupted: a thread ends its process. Ranks learn of each
    other through the launcher's store; without one, each rank only keeps its own time.
    """

    def __init__(self, seconds: float, show: Callable[[list[str]], None]) -> None:
        self.rank, self.world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._seconds, self._show = seconds, show
        self._stage, self._began = "building the task", time.monotonic()
        self._own = ""  # the problem of this rank
        self._main = threading.get_ident()
        self._ended, self._ending = threading.Event(), threading.Lock()
        self._store = _launcher_store()
        self._thread = threading.Thread(target=self._look, name="steadyrun-preflight-watch", daemon=True)
        self._thread.start()

    def stage(self, name: str) -> None:
        """A new stage begins."""
        self._stage, self._began = name, time.monotonic()

    def fail(self, problem: str) -> None:
        """End all ranks because of a problem of this one."""
        self._publish(problem)
        self._end()

    def close(self) -> None:
        """Leave together: gloo aborts a rank whose peer closes first."""
        if self._store is not None:
            self._store.set(self._key("left", self.rank), "")
            keys = [self._key("left", rank) for rank in range(self.world)]
            with suppress(RuntimeError):  # a rank that has left anyway
                self._store.wait(keys, timedelta(seconds=_REPORTED))
        self._ended.set()

    def _look(self) -> None:
        while not self._ended.wait(_LOOK):
            late = time.monotonic() - self._began > self._seconds
            failures = self._failures()
            if late or any(problem.startswith(_LATE) for problem in failures.values()):
                self._publish(f"{_LATE} {self._stage} after {self._seconds:g} s; {self._where()}")
            if late or failures:
                self._end()

    def _end(self) -> None:
        """Rank 0 collects what the ranks published and shows it; then every rank exits."""
        self._ending.acquire()  # one of the two threads ends the process, the other waits for it
        if self.rank == 0 or self._store is None:
            time.sleep(_GRACE)
            failures = self._failures() or {self.rank: self._own}
            self._show([f"rank {rank}: {problem}" for rank, problem in sorted(failures.items())])
            self._set("shown", "")
        else:
            self._wait_for_report()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_FAILED)

    def _wait_for_report(self) -> None:
        assert self._store is not None
        until = time.monotonic() + _REPORTED
        while time.monotonic() < until:
            try:
                if self._store.check([self._key("shown", 0)]):
                    return
            except RuntimeError:  # the store ended with the launcher
                return
            time.sleep(_LOOK)

    def _publish(self, problem: str) -> None:
        self._own = self._own or problem
        if problem:
            self._set("failed", problem)

    def _set(self, kind: str, text: str) -> None:
        if self._store is not None:
            try:
                self._store.set(self._key(kind, self.rank), json.dumps(text))
            except RuntimeError:
                self._store = None

    def _failures(self) -> dict[int, str]:
        """What failed, by rank."""
        failures: dict[int, str] = {}
        for rank in range(self.world if self._store is not None else 0):
            try:
                if self._store is not None and self._store.check([self._key("failed", rank)]):
                    failures[rank] = json.loads(self._store.get(self._key("failed", rank)))
            except RuntimeError:  # the store ended with the launcher
                break
        return failures

    def _key(self, kind: str, rank: int) -> str:
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return f"steadyrun/preflight/{attempt}/{kind}/{rank}"

    def _where(self) -> str:
        """What the main thread does: waits for other ranks, or executes a line of the program."""
        frame: FrameType | None = sys._current_frames().get(self._main)
        lines = traceback.extract_stack(frame) if frame is not None else []
        own = [line for line in lines if f"{os.sep}torch{os.sep}" not in line.filename]
        if not own or own[-1].filename == __file__:
            return "it waits for other ranks"
        return f"it executes {Path(own[-1].filename).name}:{own[-1].lineno} ({own[-1].name})"


def _launcher_store() -> Any | None:
    """A connection of our own to the store that torchrun keeps; None without torchrun."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    try:
        return dist.TCPStore(  # type: ignore[attr-defined]
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=30),
        )
    except (KeyError, ValueError, RuntimeError):
        return None


def make_group(problem: Exception, seconds: float) -> bool:
    """Make the process group if a task cannot be built without one: scripts make it before they build the model."""
    if dist.is_initialized() or _NO_GROUP not in str(problem):
        return False
    _make(seconds)
    return True


def _make(seconds: float) -> None:
    try:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", timeout=timedelta(seconds=seconds))
    except ValueError as problem:
        raise UsageError(f"the process group cannot be made from the environment: {problem}") from problem


class RankGroup:
    """All ranks, with a channel of their own for plain objects."""

    def __init__(self, watch: Watch, seconds: float = SECONDS, *, made: bool = False) -> None:
        """`made`: whether we have made the process group, and are to destroy it."""
        self._watch = watch
        self.made = made or not dist.is_initialized()
        if not dist.is_initialized():
            _make(seconds)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._channel = dist.new_group(backend="gloo", timeout=timedelta(seconds=2 * seconds))  # the watch is earlier

    def gather(self, value: T) -> list[T]:
        """The value of every rank, on every rank."""
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self._channel)
        return values

    def everywhere(self, stage: str, work: Callable[[], T]) -> T:
        """Do something on this rank while the others do it; a failure of one ends all."""
        self._watch.stage(stage)
        try:
            return work()
        except (UsageError, MissingSignal) as problem:
            self._watch.fail(str(problem))
        except Exception as problem:
            last = traceback.extract_tb(problem.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            self._watch.fail(f"{stage}: {type(problem).__name__}: {problem} ({where})")
        raise SystemExit(_FAILED)  # not reached: the watch has ended the process

    def close(self) -> None:
        """Leave; a group that we made is destroyed."""
        dist.barrier(group=self._channel)
        self._watch.close()
        if self.made:
            dist.destroy_process_group()
