"""A thread beside the training of one rank of several: it leaves heartbeats, and the stacks of a step that stalls."""

from __future__ import annotations

import faulthandler
import os
import platform
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from steadyrun.recording.step_clock import VALIDATION, StepClock
from steadyrun.store.flight_recorder import keep_trace
from steadyrun.store.heartbeats import ENDED, RUNNING, open_stacks, stacks_file, write_heartbeat
from steadyrun.store.writer import RunWriter

_EVERY = 5.0  # seconds between two heartbeats
_SHORTEST = 30.0  # seconds: no shorter step is a stall
_TIMES = 10.0  # times the longest of the last steps
_UNKNOWN = 600.0  # seconds, as long as the usual step is not known, and for a validation: compiling takes minutes
_FEWEST = 5  # steps after which the usual one is known
_GOODBYE = 2.0  # seconds that the end of a run waits for the last heartbeat
_OURS = str(Path(__file__).parents[1])
_LIBRARIES = (_OURS, *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}, "<frozen")


class Watchdog:
    """Watches the clock of one rank's steps. It knows no object of the program, and ends with the run."""

    def __init__(
        self,
        writer: RunWriter,
        world: int,
        step: int,
        stall_seconds: float | None,
        problem: Callable[[str, Exception], None],
    ) -> None:
        self.clock = StepClock(step)
        self.world = world
        self._writer, self._given, self._problem = writer, stall_seconds, problem
        self._stalled: tuple[int, float] | None = None  # step, and when it began
        self._ended = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._watch, name="steadyrun-heartbeat", daemon=True)
        self._thread.start()

    @property
    def limit(self) -> float:
        """Seconds after which a step counts as stalled."""
        if self._given is not None:
            return self._given
        known = self.clock.steps >= _FEWEST and self.clock.now[1] != VALIDATION
        return max(_SHORTEST if known else _UNKNOWN, _TIMES * self.clock.longest)

    def close(self, *, failed: bool) -> None:
        """Write the last heartbeat and end the thread; a file system that hangs does not hold the program."""
        self._failed = failed
        self._ended.set()
        self._thread.join(_GOODBYE)

    def _watch(self) -> None:
        pause = _EVERY if self._given is None else min(_EVERY, self._given / 4)
        self._try("heartbeats", self._beat)
        while not self._ended.wait(pause):
            self._try("heartbeats", self._beat)
            self._try("stalled steps", self._look)
        if not self._failed:
            self._try("stalled steps", self._went_on)
        self._try("heartbeats", self._beat)

    def _try(self, what: str, action: Callable[[], None]) -> None:
        """A full disk or a deleted folder costs a heartbeat; the next one is tried again."""
        try:
            action()
        except Exception as problem:
            self._problem(what, problem)

    def _beat(self) -> None:
        step, phase, began = self.clock.now
        now, seconds = time.time(), time.perf_counter() - began
        content = {
            "rank": self._writer.rank,
            "world": self.world,
            "host": platform.node(),
            "pid": os.getpid(),
            "step": step,
            "phase": phase,
            "step_began": now - seconds,
            "now": now,
            "seconds_in_step": seconds,
            "state": ENDED if self._ended.is_set() else RUNNING,
        }
        if not self._writer.given_up:
            write_heartbeat(self._writer.root, self._writer.rank, content)

    def _look(self) -> None:
        """Record a step that has lasted too long, once, and that it went on."""
        step, phase, began = self.clock.now
        if self._stalled is not None and self._stalled != (step, began):
            self._went_on()
        seconds = time.perf_counter() - began
        if self._stalled is not None or seconds < self.limit:
            return
        self._stalled = (step, began)
        root, rank = self._writer.root, self._writer.rank
        stacks = self._dump(f"step {step}, {phase or 'unknown phase'}, {seconds:.1f} s, {time.ctime()}")
        self._try("the flight recorder", lambda: keep_trace(root, rank, _collectives()))
        self._writer.event(
            "stalled",
            step,
            phase=phase,
            seconds=round(seconds, 3),
            usual=round(self.clock.longest, 3) if self.clock.steps else None,
            stacks=stacks,
            where=_where(sys._current_frames().get(self.clock.thread)),
        )

    def _went_on(self) -> None:
        if self._stalled is not None:
            (step, began), self._stalled = self._stalled, None
            ended = self.clock.now[2]
            seconds = (ended if ended > began else time.perf_counter()) - began
            self._writer.event("went-on", step, seconds=round(seconds, 3))

    def _dump(self, title: str) -> str | None:
        """Append the Python stacks of all threads; the file's path within the run directory."""
        root, rank = self._writer.root, self._writer.rank
        with_room = open_stacks(root, rank)
        if with_room is not None:
            with with_room as file:
                file.write(f"== rank {rank}: {title}\n".encode())
                faulthandler.dump_traceback(file, all_threads=True)
                file.write(b"\n")
        return str(stacks_file(root, rank).relative_to(root))


def _collectives() -> bytes | None:
    """The last collectives of this process, if torch.distributed has recorded them."""
    if "torch.distributed" not in sys.modules:
        return None
    from steadyrun.program.torch_compat import recorded_collectives

    return recorded_collectives()


def _where(frame: FrameType | None) -> str:
    """The innermost line of the program itself, outside of libraries."""
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
