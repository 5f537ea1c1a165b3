"""`run.rollback()`: which checkpoint training goes back to, so that it cannot go back to the same one for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from steadyrun.capture.checkpoints import Checkpoint
from steadyrun.errors import UsageError

MOST = 3  # times that training may go back to one checkpoint


@dataclass(frozen=True)
class Rollback:
    """What was done: the state before step `to` is back, and `seam` is the next step. `skipped` counts batches."""

    to: int
    last: int
    seam: int
    skipped: int
    given_up: bool  # whether step `last` was begun and not recorded


class Returns:
    """Counts how often each state was gone back to. A copy of a state, taken where training went on, is the same."""

    def __init__(self) -> None:
        self._times: Counter[int] = Counter()

    def choose(self, checkpoints: Sequence[Checkpoint], until: int) -> Checkpoint:
        """The last good checkpoint up to step `until` that may still be used; a clear error where there is none."""
        good = sorted(
            (checkpoint for checkpoint in checkpoints if checkpoint.finite and checkpoint.step <= until),
            key=lambda checkpoint: -checkpoint.step,
        )
        if not good:
            raise UsageError(f"there is no good checkpoint of a step up to {until} to go back to")
        latest = next((checkpoint for checkpoint in good if self._times[checkpoint.root] < MOST), None)
        if latest is None:
            steps = ", ".join(str(checkpoint.root) for checkpoint in good)
            raise UsageError(
                f"training went back {MOST} times to each of its good checkpoints (before steps {steps}), and it went "
                "wrong again every time: it is not the batches. steadyrun check and steadyrun replay look for the cause"
            )
        return latest

    def used(self, checkpoint: Checkpoint) -> None:
        self._times[checkpoint.root] += 1
