"""What happens to gradients between the end of backward and the optimizer's step."""

from __future__ import annotations

import numpy as np

from steadyrun.signals.run_signals import Points, Signals


def at_backward(run: Signals) -> Points | None:
    """The whole gradient norm when backward ended, at the steps where it was sampled by block."""
    parts = [run.points(name) for name in run.matching("block_grad_norm/*") if run.maybe(name) is not None]
    if not parts:
        return None
    steps = parts[0].steps
    for part in parts[1:]:
        steps = np.union1d(steps, part.steps)
    squares = [np.where(np.isin(steps, p.steps), np.interp(steps, p.steps, p.values), 0.0) ** 2 for p in parts]
    return Points("at backward", steps, np.sqrt(np.sum(squares, axis=0)))


def divided_later(run: Signals) -> float | None:
    """By how much gradients shrink between the end of backward and the step, other than by clipping."""
    before, norm, applied = at_backward(run), run.maybe("grad_norm"), run.maybe("grad_norm_applied")
    if before is None or norm is None or applied is None:
        return None
    # torch's clip function sees what is left after a division by hand; without it the step does.
    left = norm if run.has("clip_threshold") else applied
    now = np.interp(before.steps, left.steps, left.values)
    usable = (now > 0) & (before.values > 0)
    return float(np.median(before.values[usable] / now[usable])) if np.any(usable) else None
