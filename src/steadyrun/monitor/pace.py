"""When the monitor looks: soon at first, later no more often than its share of the run's time allows."""

from __future__ import annotations

SHARE = 0.005  # of the time since the start that looking may take
_AT_ONCE = 0.1  # seconds that it may take in any case: a few looks in the first hundreds of steps
_FIRST = 50  # steps
_MOST_APART = 500  # steps, where time allows


class Pace:
    """Keeps to the budget. Asked after every step, so `due` is two comparisons."""

    def __init__(self, now: float, turn: int) -> None:
        self._start, self._base = now, turn
        self._next_turn = turn + _FIRST
        self._next_time = now
        self._spent = 0.0

    def due(self, now: float, turn: int) -> bool:
        return turn >= self._next_turn and now >= self._next_time

    def looked(self, began: float, ended: float, turn: int) -> None:
        """After a look: the next one when the run is twice as old, or 500 steps on, and the budget has room for it."""
        took = ended - began
        self._spent += took
        self._next_turn = turn + min(max(_FIRST, turn - self._base), _MOST_APART)
        self._next_time = self._start + max(0.0, self._spent + took - _AT_ONCE) / SHARE
