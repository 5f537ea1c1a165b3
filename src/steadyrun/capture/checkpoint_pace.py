"""When the training state is copied, and whether at all: what it costs is estimated before the first copy."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from steadyrun.capture.batch_ring import Ring
from steadyrun.capture.capture_options import Settings
from steadyrun.capture.checkpoints import available_memory
from steadyrun.capture.staging import Beside, Staging, Wanted
from steadyrun.capture.writer_thread import Job
from steadyrun.probes.problems import Problems
from steadyrun.program import snapshot as training
from steadyrun.program.packing import Packed

_SHARE = 0.005  # of the training time that copying may take
_FREE = 0.002  # seconds that one copy may take in any case
_OF_MEMORY = 0.25  # of what is available that a copy may take
_ASKED = 8  # steps after which it is worked out again when the next copy is due
_WARMING = 20  # steps at the start that are slow anyway: memory is pinned as fast as it can be
_AT_ONCE = 2**28  # bytes that are pinned before the first step: about 0.1 s
_MEMORY_SPEED, _BUS_SPEED = 4e9, 25e9  # bytes a second, until it is measured: a copy in memory, and from a device
# A copy from a device is hidden behind forward and backward pass, which take two thirds of a step or more. One that
# takes as long as a step makes that step a third longer.
_OF_A_STEP = 1.0


class Checkpointing:
    """Every so many steps; sooner where the ring is short, later where a copy is expensive."""

    def __init__(self, settings: Settings, problems: Problems) -> None:
        self._settings, self._problems = settings, problems
        self._pool = training.Pool()
        self._staging: Staging | None = None  # if a part of the state is on a CUDA device
        self._growing = False  # the moments have no memory yet
        self._not_before = 0.0  # when memory may be pinned again
        self._last: int | None = None
        self._not_until = 0  # the step before which no copy is due
        self._cost = 0.0
        self._approved = 0  # bytes of a state that is known to be affordable
        self._off = False
        self._steps, self._began = 0, time.perf_counter()

    def restart(self) -> None:
        """The objects are others: the next step begins with a checkpoint."""
        self._last = None
        self._steps, self._began = 0, time.perf_counter()

    def due(self, step: int, ring: Ring) -> bool:
        self._steps += 1
        if self._steps == _WARMING:
            self._began = time.perf_counter()
        if self._off or (self._not_before and time.perf_counter() < self._not_before):
            return False
        return self._is_time(step, ring) or (self._growing and self._steps > 1)

    def take(
        self, step: int, objects: training.Objects, ring: Ring | None, later: Callable[[Job], None]
    ) -> tuple[Packed, Beside] | None:
        """A copy of the state before `step`, and what to wait for before it changes; None if there is none now."""
        if self._off:
            return None
        state = training.refer(objects)
        if not self._affordable(state.nbytes + training.bytes_to_come(objects)):
            self._off = True
            return None
        with torch.no_grad():
            if any(tensor.device.type == "cuda" for tensor in state.tensors.values()):
                return self._staged(step, state, ring, later)
            began = time.thread_time()
            state.tensors = self._pool.copies(state.tensors)
        # The first copies make their buffers, which costs more than all that follows.
        self._cost = state.nbytes / _MEMORY_SPEED if self._pool.grew else time.thread_time() - began
        self._last = step
        return state, Beside()

    def _staged(
        self, step: int, state: Packed, ring: Ring | None, later: Callable[[Job], None]
    ) -> tuple[Packed, Beside] | None:
        first = self._staging is None
        staging = self._staging = self._staging or Staging()
        self._cost = state.nbytes / (staging.speed() or _BUS_SPEED)
        if self._too_long(state.nbytes):
            self._off, self._staging = True, None
            later(staging.clear)
            return None
        if ring is None or (first and state.nbytes <= _AT_ONCE):
            staging.make(wanted := staging.lacking(state.tensors), most=len(wanted))
        self._growing = first
        if wanted := staging.lacking(state.tensors):
            self._growing = True
            staging.measure(state.tensors)
            later(lambda: self._make(staging, wanted))
            return None
        if ring is not None and not self._is_time(step, ring):
            return None
        state.tensors, beside = staging.copies(state.tensors)
        self._last = step
        return state, beside

    def _make(self, staging: Staging, wanted: list[Wanted]) -> None:
        """In the writing thread. Pinning holds up what the training sends to the device, so it is rationed."""
        took = staging.make(wanted)
        self._not_before = time.perf_counter() + (took / _SHARE if self._steps > _WARMING else 0.0)

    def beside(self, works: bool) -> None:
        """Whether copies are made in a stream of their own."""
        if self._staging is not None and not works:
            self._staging.beside = False

    def _is_time(self, step: int, ring: Ring) -> bool:
        if self._last is None or step < self._last:
            return True
        if step < self._not_until:
            return False
        due = self._last + self._interval(ring)
        self._not_until = min(due, step + _ASKED)
        return step >= due

    def _pace(self) -> float:
        """Seconds a step, without the first ones."""
        steps = self._steps - _WARMING if self._steps > _WARMING else self._steps
        return (time.perf_counter() - self._began) / max(1, steps)

    def _interval(self, ring: Ring) -> int:
        reach = max(1, ring.capacity() // 2) if len(ring) else self._settings.every
        planned = min(self._settings.every, reach)
        paid = int(self._cost / (_SHARE * self._pace())) if self._cost > _FREE and self._steps > 10 else 0
        if paid > planned:
            self._say_rare(planned, paid, reach)
        return max(planned, paid)

    def _say_rare(self, planned: int, paid: int, reach: int) -> None:
        rare = (
            f"a copy of the training state takes about {1e3 * self._cost:.0f} ms and is taken only every {paid} steps"
        )
        if paid > reach:
            self._problems.unavailable(
                "every batch since the last checkpoint",
                f"batches are kept for {2 * reach} steps, and {rare}, to stay within half a percent of the time: "
                'incidents in between cannot be replayed; watch(…, capture={"batch_bytes": …}) keeps more',
            )
        else:
            self._problems.unavailable(
                f"a checkpoint every {planned} steps", f"{rare}, to stay within half a percent of the time"
            )

    def _affordable(self, size: int) -> bool:
        if size <= self._approved:
            return True
        limit, free = self._settings.largest, available_memory()
        if size <= limit and (free is None or size <= _OF_MEMORY * free):
            self._approved = size
            return True
        gib = size / 2**30
        if size > limit:
            why = f"a copy of the training state has {gib:.1f} GiB, more than capture's checkpoint_bytes allows"
            self._say_off(f"{why} ({limit / 2**30:.1f} GiB)", size)
        else:
            self._say_off(f"a copy of the training state has {gib:.1f} GiB, of {(free or 0) / 2**30:.1f} GiB available")
        return False

    def _too_long(self, size: int) -> bool:
        """Whether a step would wait for the copy of a state that nobody asked for."""
        if self._settings.checkpoint_bytes is not None or self._steps <= _WARMING:
            return False
        if self._cost <= _OF_A_STEP * self._pace():
            return False
        taken, step = f"{1e3 * self._cost:.0f} ms", f"{1e3 * self._pace():.0f} ms"
        self._say_off(f"a copy of the training state takes about {taken}, longer than a step ({step})", size)
        return True

    def _say_off(self, why: str, size: int = 0) -> None:
        how = f'; watch(…, capture={{"checkpoint_bytes": {_rounded(size)}}}) captures it' if size else ""
        self._problems.unavailable("rolling checkpoints", f"{why}: incidents cannot be replayed{how}")


def _rounded(size: int) -> str:
    """A number of bytes with some room, as people write it."""
    return f"{1.2 * size:.2g}"
