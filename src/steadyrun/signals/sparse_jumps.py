"""A loss that jumps in a record of a few points, where no deviation can be told: an excerpt, or a very sparse log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

_FEWEST = 2  # points before a jump
_ROSE = 2.0  # times the middle of the points before: a gradient that rose
_LOOK_BACK = 10  # points before the jump in which the gradient may have risen


@dataclass(frozen=True)
class LossJump:
    """The highest point of a jump, and what is known of it."""

    step: int
    times: float
    words: str


def jump_of(run: Signals, times: float) -> LossJump | None:
    """The highest loss that is so many times the middle of the points before it; None where there is none."""
    loss = run.points("loss")
    values = loss.values
    before = np.array([float(np.median(values[:index])) for index in range(_FEWEST, len(values))])
    later = values[_FEWEST:]
    if not len(later) or float(np.min(values)) <= 0:
        return None
    first = np.flatnonzero(later > times * before)
    if not len(first):
        return None
    start = int(first[0])
    over = np.flatnonzero(later[start:] <= times * before[start])
    end = start + int(over[0]) if len(over) else len(later)
    peak = start + int(np.argmax(later[start:end]))
    level, high = float(before[start]), float(later[peak])
    step, began = loss.step_at(_FEWEST + peak), loss.step_at(_FEWEST + start)
    words = (
        f"the loss jumps from {shown(level)} to {shown(later[start])} at step {began}"
        + (f" and {shown(high)} at step {step}" if peak > start else "")
        + f" ({shown(high / level)} times, limit {times:g})"
        + (f"; back at {shown(later[end])} at step {loss.step_at(_FEWEST + end)}" if end < len(later) else "")
        + _lead(run.maybe("grad_norm"), began)
        + _scale(run.maybe("loss_scale"), began, step)
        + "."
    )
    return LossJump(step, high / level, words)


def _lead(norms: Points | None, began: int) -> str:
    """Whether the gradient norm rose before the loss did, and where first."""
    if norms is None:
        return ""
    jump = int(np.searchsorted(norms.steps, began))
    for index in range(max(1, jump - _LOOK_BACK), jump):
        level = float(np.median(norms.values[:index]))
        if level > 0 and np.all(norms.values[index : jump + 1] > _ROSE * level):
            norm = norms.values[index]
            words = f"{shown(norm)} at step {norms.step_at(index)}, {shown(norm / level)} times"
            steps = began - norms.step_at(index)
            return f". The gradient norm rose first: {words} what it was, {steps} steps before the loss"
    return ""


def _scale(scale: Points | None, began: int, peak: int) -> str:
    """Whether the loss scale fell with the jump."""
    if scale is None:
        return ""
    before, during = scale.values[scale.steps < began], scale.values[(scale.steps >= began) & (scale.steps <= peak)]
    if not len(before) or not len(during) or float(np.min(during)) >= float(before[-1]):
        return ""
    return f". The loss scale fell with it, from {shown(before[-1])} to {shown(np.min(during))}"
