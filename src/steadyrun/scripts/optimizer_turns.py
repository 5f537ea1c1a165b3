"""Which optimizer step completes a recorded step, if a script has several optimizers."""

from __future__ import annotations

from collections import Counter

_PATIENCE = 10  # steps of one optimizer in the first round, after which the others are not used yet


class OptimizerTurns:
    """In each round every optimizer steps at least once; the one that completed the first round ends every round.

    With a generator and a discriminator, or with two optimizers on one model, a round is one recorded step. If one
    optimizer steps alone for longer than in any round before (a next stage of training), its steps are recorded.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._turns: Counter[int] = Counter()
        self._most: Counter[int] = Counter()  # steps of an optimizer in one round

    def completes(self, optimizer: int, together: set[int], awaited: set[int] | None = None) -> bool:
        """Whether the step of `optimizer` ends a recorded step; `together` are all, by id.

        `awaited` are those of them without which the first round is not complete.
        """
        self._turns[optimizer] += 1
        if len(together) == 1 or optimizer == self._last:
            self._end_round(optimizer)  # and it stays the last, if another one joins later
            return True
        if self._last is None and set(self._turns) >= (together if awaited is None else awaited):
            self._end_round(optimizer)
            return True
        if self.alone(optimizer):
            self._last = optimizer
            self._turns.clear()
            return True
        return False

    def alone(self, optimizer: int) -> bool:
        """Whether `optimizer` has made more steps since the last round than it makes in a round."""
        usual = 2 * max(1, self._most[optimizer])
        return self._turns[optimizer] > (_PATIENCE - 1 if self._last is None else usual)

    @property
    def open_round(self) -> int | None:
        """The optimizer that stepped most in the round that is not complete, if no round was complete before."""
        if self._last is not None or not self._turns:
            return None
        return self._turns.most_common(1)[0][0]

    def _end_round(self, last: int) -> None:
        self._last = last
        self._most |= self._turns
        self._turns.clear()
