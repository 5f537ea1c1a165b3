"""The last steps with their batches, within a budget of bytes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from steadyrun.program.packing import Packed
from steadyrun.program.random_state import RandomState, share

_TOGETHER = 32  # steps whose random states are compared together
_ACCOUNT = 32_768  # bytes that a step takes besides its batch, as measured: random states twice, and its numbers


@dataclass(slots=True)
class KeptStep:
    """One step: what went into it, and (as they arrive) the numbers recorded for it."""

    step: int
    random: RandomState  # after the step before
    forward: RandomState | None = None  # before the forward pass; a loader, or the loss function, may have drawn since
    batch: Packed | None = None
    token_losses: Packed | None = None
    input_hash: Any = None  # of what the model was given: a number, or a tensor that will be one
    values: dict[str, float | None] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        own = 0 if self.batch is None else self.batch.nbytes
        return _ACCOUNT + own + (0 if self.token_losses is None else self.token_losses.nbytes)


class Ring:
    """Takes steps and forgets the oldest when the budget is used up."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._steps: deque[KeptStep] = deque()
        self._bytes = 0
        self._alone = 0  # steps whose random states have not been compared yet

    def add(self, kept_step: KeptStep) -> None:
        self._steps.append(kept_step)
        self._alone += 1
        if self._alone >= _TOGETHER:
            self._share_states()
        self._bytes += kept_step.nbytes
        while self._bytes > self._budget and self._steps:
            self._bytes -= self._steps.popleft().nbytes

    def _share_states(self) -> None:
        """Equal random states of the last steps become one: in most programs few steps draw numbers."""
        last = list(islice(reversed(self._steps), self._alone + 1))[::-1]
        share(state for kept in last for state in (kept.random, kept.forward) if state is not None)
        self._alone = 0

    def clear(self) -> None:
        self._steps.clear()
        self._bytes = 0

    def capacity(self) -> int:
        """How many steps like those of now fit in."""
        return int(self._budget * len(self._steps) / self._bytes) if self._bytes else 0

    def steps(self) -> list[KeptStep]:
        return list(self._steps)

    @property
    def nbytes(self) -> int:
        return self._bytes

    def __len__(self) -> int:
        return len(self._steps)
