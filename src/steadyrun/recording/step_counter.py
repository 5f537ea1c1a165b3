"""Which step is next, and where an attempt begins."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from steadyrun.store.reader import open_run
from steadyrun.store.writer import RunWriter

_MOST = 2**53  # further numbers are not exact on a page, in JSON and as a float


def step_number(step: Any) -> int:
    """`step` as the number of a step: any whole number, of whatever type; a clear error otherwise."""
    try:
        number = operator.index(step)
    except TypeError:
        number = _whole(step)
    if isinstance(step, bool) or not -_MOST <= number <= _MOST:
        raise ValueError(f"step must be a whole number between -2**53 and 2**53, not {_shown(step)}")
    return number


def _whole(step: Any) -> int:
    number = float("nan") if isinstance(step, str | bytes) else float(step)
    if not number.is_integer():
        raise ValueError(f"step must be a whole number, not {_shown(step)}")
    return int(number)


def _shown(step: Any) -> str:
    """As short as it must be: Python refuses to write out an integer of 5,000 digits."""
    if isinstance(step, int) and step.bit_length() > 200:
        return f"one of {step.bit_length()} bits"
    return repr(step)[:100]


class Steps:
    """Counts the steps of one attempt; with the first thing recorded it is known where the attempt starts."""

    def __init__(self, writer: RunWriter, before: int | None, first: int | None) -> None:
        self.before = before  # the last step of the attempts before this one
        self.next = first if first is not None else 0 if before is None else before + 1
        self.begun = False
        self._writer = writer
        self._first_was_given = first is not None

    @property
    def resumed(self) -> bool:
        return self.before is not None

    @property
    def last(self) -> int:
        """The last recorded step; before the first of this attempt, the one to come."""
        return max(0, self.next - 1) if self.begun else self.next

    def begin(self, step: int) -> None:
        """Record where this attempt starts, once."""
        if self.begun:
            return
        self.begun = True
        attempt = self._writer.attempt
        if not self.resumed:
            self._writer.event("start", step, attempt=attempt)
            return
        why = f"attempt {attempt} continues at step {step}; the attempt before ended after step {self.before}"
        self._writer.event("resume", step, attempt=attempt, after_step=self.before, why=why)

    def infer_from(self, optimizer: Any) -> None:
        """On a resume the optimizer's own counter shows where training goes on, unless the user said so."""
        if self.begun or self.before is None or self._first_was_given:
            return
        from steadyrun.probes.watch_setup import optimizer_step_count

        count = optimizer_step_count(optimizer)
        if count > 0:
            self.next = self._step_after(count)

    def _step_after(self, count: int) -> int:
        """The step that follows the optimizer's `count`-th; steps that a GradScaler skipped were not counted."""
        view, rank = open_run(self._writer.root), self._writer.rank
        # After a rollback the optimizer counts fewer steps than were recorded.
        if "optimizer_steps" not in view.names(rank) or view.events("rollback"):
            return self.next
        taken, skipped = view.series("optimizer_steps", rank), view.series("skipped", rank)
        counted = np.cumsum(np.where(np.isin(taken.steps, skipped.steps[skipped.values > 0]), 0, taken.values))
        steps = taken.steps[counted == count]
        return int(steps[-1]) + 1 if len(steps) else self.next
