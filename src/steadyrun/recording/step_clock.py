"""The clock of a step: the seconds of each of its phases, and the phase under way."""

from __future__ import annotations

import time
from collections import deque
from threading import get_ident

DATA, FORWARD, BACKWARD, UPDATE, VALIDATION = "data", "forward", "backward", "update", "validation"
BACKWARD_ENDED = "backward-ended"  # a mark: whether clipping or another micro-batch follows is seen at the next one

_TIMED = (DATA, FORWARD, BACKWARD, UPDATE)
_USUAL = 100  # last steps whose longest duration is usual


class StepClock:
    """Reads the clock at a few marks per step, in the training thread only; another thread reads `now`."""

    def __init__(self, step: int) -> None:
        self.now: tuple[int, str | None, float] = (step, None, time.perf_counter())  # replaced as a whole
        self.busy_counts = False  # on the CPU, a thread that waits uses no CPU time
        self.forward_is_seen = False
        self.thread = get_ident()
        self._durations: deque[float] = deque(maxlen=_USUAL)
        self._seconds: dict[str, float] = {}
        self._busy = 0.0
        self._marked = (time.perf_counter(), time.thread_time())
        self._phase: str | None = None

    @property
    def steps(self) -> int:
        """How many of the last steps were timed."""
        return len(self._durations)

    @property
    def longest(self) -> float:
        """The longest of the last steps, in seconds; 0 before the first."""
        return max(tuple(self._durations), default=0.0)

    def mark(self, phase: str) -> None:
        """A phase begins; called by the hooks."""
        if get_ident() != self.thread:
            return
        self._count(phase)
        self._phase = phase
        if phase != BACKWARD_ENDED:
            step, _, began = self.now
            self.now = (step, phase, began)

    def step_ends(self) -> dict[str, float]:
        """The columns of the step that ends: seconds of its phases, as far as their marks were seen."""
        if get_ident() != self.thread:
            return {}
        self._count(None)
        self._phase = None
        seen = self._seconds if FORWARD in self._seconds else self._without_forward()
        columns = {f"time/{phase}": seen[phase] for phase in _TIMED if phase in seen}
        if self.busy_counts and BACKWARD in seen:
            columns["time/busy"] = self._busy
        return columns

    def step_begins(self, step: int) -> None:
        """The end of `run.step`: the next step is under way."""
        now = time.perf_counter()
        self._durations.append(now - self.now[2])
        self.thread = get_ident()
        self._seconds, self._busy = {}, 0.0
        self._marked = (now, time.thread_time())
        self._phase = DATA if self.forward_is_seen else None
        self.now = (step, self._phase, now)

    def _count(self, following: str | None) -> None:
        """Add the time since the last mark to its phase."""
        now, used = time.perf_counter(), time.thread_time()
        phase = self._phase
        if phase == BACKWARD_ENDED:
            phase = DATA if following == FORWARD else BACKWARD
        if phase is not None:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._marked[0]
        if phase in (FORWARD, BACKWARD):
            self._busy += used - self._marked[1]
        self._marked = (now, used)

    def _without_forward(self) -> dict[str, float]:
        """Data and forward pass cannot be separated if no forward pass was seen, as in a compiled model."""
        return {phase: seconds for phase, seconds in self._seconds.items() if phase in (BACKWARD, UPDATE)}
