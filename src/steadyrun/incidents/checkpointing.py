"""When the training state is copied, and whether it can be afforded."""

from __future__ import annotations

import time
from pathlib import Path

from steadyrun.incidents import state as training
from steadyrun.incidents.packing import Packed
from steadyrun.incidents.ring import Ring
from steadyrun.incidents.settings import Settings
from steadyrun.probes.problems import Problems

_SHARE = 0.005  # of the training time that copying may take
_FREE = 0.002  # seconds that one copy may take in any case
_OF_MEMORY = 0.25  # of what is available that a copy may take


class Checkpointing:
    """Every so many steps; sooner where the ring is short, later where a copy is expensive."""

    def __init__(self, settings: Settings, problems: Problems) -> None:
        self._settings, self._problems = settings, problems
        self._pool = training.Pool()
        self._last: int | None = None
        self._cost = 0.0
        self._off = False
        self._steps, self._began = 0, time.perf_counter()

    def restart(self) -> None:
        """The objects are others: the next step begins with a checkpoint."""
        self._last = None
        self._steps, self._began = 0, time.perf_counter()

    def due(self, step: int, ring: Ring) -> bool:
        self._steps += 1
        if self._off:
            return False
        return self._last is None or step < self._last or step - self._last >= self._interval(ring)

    def take(self, step: int, objects: training.Objects) -> Packed | None:
        """A copy of the state before `step`; None where it is too large."""
        if self._off:
            return None
        if self._pool.empty and not self._affordable(training.state_bytes(objects)):
            self._off = True
            return None
        began = time.thread_time()
        state = training.take(objects, self._pool)
        if not self._pool.grew:  # the first copies make their buffers, which costs more than all that follows
            self._cost = time.thread_time() - began
        self._last = step
        return state

    def _interval(self, ring: Ring) -> int:
        reach = max(1, ring.capacity() // 2) if len(ring) else self._settings.every
        wanted = min(self._settings.every, reach)
        pace = (time.perf_counter() - self._began) / max(1, self._steps)
        paid = int(self._cost / (_SHARE * pace)) if self._cost > _FREE and self._steps > 10 else 0
        if paid > wanted and paid > reach:
            self._problems.unavailable(
                "every batch since the last checkpoint",
                f"batches are kept for {2 * reach} steps, and a copy of the training state is taken only every {paid}, "
                "to stay within half a percent of the time: incidents in between cannot be replayed; "
                'watch(…, capture={"batch_bytes": …}) keeps more',
            )
        return max(wanted, paid)

    def _affordable(self, size: int) -> bool:
        limit = self._settings.checkpoint_bytes
        free = available_memory()
        if size <= limit and (free is None or size <= _OF_MEMORY * free):
            return True
        why = (
            f"a copy of the training state has {size / 2**30:.1f} GiB, more than capture's checkpoint_bytes allows"
            if size > limit
            else f"a copy of the training state has {size / 2**30:.1f} GiB, of {(free or 0) / 2**30:.1f} GiB available"
        )
        self._problems.unavailable("rolling checkpoints", f"{why}: incidents cannot be replayed")
        return False


def available_memory() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    except (OSError, ValueError):
        return None
