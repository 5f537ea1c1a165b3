"""Which optimizer step completes a recorded step, if a script has several optimizers."""

from __future__ import annotations

from collections import Counter

_PATIENCE = 10  # steps of one optimizer while the others rest, after which its steps are the recorded ones


class OptimizerTurns:
    """In each round every optimizer steps at least once; the one that completed the first round ends every round.

    With a generator and a discriminator, or with two optimizers on one model, a round is one recorded step. If one
    optimizer steps alone for long (a first stage of training, many critic steps), its steps are recorded.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._turns: Counter[int] = Counter()

    def completes(self, optimizer: int, together: set[int]) -> bool:
        """Whether the step of `optimizer` ends a recorded step; `together` are all, by id."""
        self._turns[optimizer] += 1
        if len(together) == 1 or optimizer == self._last:
            self._last = optimizer  # and stays it, if another one joins later
            self._turns.clear()
            return True
        first_round = self._last is None and set(self._turns) >= together
        if first_round or self._turns[optimizer] >= _PATIENCE:
            self._last = optimizer
            self._turns.clear()
            return True
        return False
