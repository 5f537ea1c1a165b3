"""How much of a core a way outward may take while the run goes on."""

from __future__ import annotations

import time

SHARE = 0.1  # of a core
_AT_ONCE = 0.01  # seconds of work before it rests: the training loop shares the interpreter with it


class Pace:
    """Counts the work of its own thread and says how long to rest for it. Waiting for a network is no work."""

    def __init__(self) -> None:
        self._since = time.thread_time()

    def rest(self, at_least: float = _AT_ONCE) -> float:
        """Seconds to rest for what was done since the last rest; 0 where that was less than `at_least`."""
        now = time.thread_time()
        spent = now - self._since
        if spent < at_least:
            return 0.0
        self._since = now
        return spent * (1 / SHARE - 1)
