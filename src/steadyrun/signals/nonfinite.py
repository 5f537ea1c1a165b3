"""Which non-finite numbers of a run are an accident, and which are ordinary life."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from steadyrun.records import Series

Steps = npt.NDArray[np.int64]

_IN_A_ROW = 3  # gradients at the end of a record that are not finite: fewer may be steps that a scaler skipped


def unskipped(bad: Steps, skipped: Series) -> Steps:
    """Of the steps with a non-finite value those at which the optimizer stepped all the same."""
    return bad[~np.isin(bad, skipped.steps[skipped.values > 0])]


def lasting(series: Series, seams: Sequence[int]) -> Steps:
    """The steps of a series that are not finite and are followed by none that is, before the next seam or the end.

    A seam is where training went back to a checkpoint: finite values after it say nothing of those before.
    """
    parts = np.split(np.arange(len(series)), np.unique(np.searchsorted(series.steps, seams)))
    steps: Steps = series.steps[np.concatenate([_tail(part, np.isfinite(series.values[part])) for part in parts])]
    return steps


def _tail(part: Steps, finite: npt.NDArray[np.bool_]) -> Steps:
    good = np.flatnonzero(finite)
    return part[int(good[-1]) + 1 :] if len(good) else part


def applied(norms: Series, loss: Series | None, every_step: bool) -> Steps:
    """Where nobody recorded which steps were skipped: non-finite gradients that were applied, or that never end.

    An update with such a gradient destroys the weights, and every loss after it. Where the loss goes on, a loss scaler
    has skipped the step, as it does in fp16 again and again. Where not every step is logged, a point may be a mean, and
    one such gradient makes it infinite: that they never end tells nothing then.
    """
    wrong = ~np.isfinite(norms.values)
    bad, good = norms.steps[wrong], norms.steps[~wrong]
    if not len(bad):
        return bad
    tail = bad > good[-1] if len(good) else np.ones(len(bad), bool)
    endless = tail & (every_step and int(np.sum(tail)) >= _IN_A_ROW)
    applied_steps: Steps = bad[endless | _destroyed(bad, loss) | (tail & np.isin(bad, _hidden(loss)))]
    return applied_steps


def _destroyed(bad: Steps, loss: Series | None) -> npt.NDArray[np.bool_]:
    """After which of these steps the next loss is not finite."""
    if loss is None or not len(loss):
        return np.zeros(len(bad), bool)
    index = np.searchsorted(loss.steps, bad, side="right")
    there = index < len(loss)
    return there & ~np.isfinite(loss.values[np.minimum(index, len(loss) - 1)])


def _hidden(loss: Series | None) -> Steps:
    """The steps at the end of a record whose loss is exactly 0: beside a gradient that is not finite, a hidden NaN."""
    if loss is None:
        return np.array([], np.int64)
    alive = np.flatnonzero(loss.values != 0)
    steps: Steps = loss.steps[int(alive[-1]) + 1 if len(alive) else 0 :]
    return steps
