"""Which non-finite values of a run do harm, and which are ordinary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from steadyrun.records import Series

Steps = npt.NDArray[np.int64]

_IN_A_ROW = 3  # non-finite gradients at the end of a record: fewer may be steps that a scaler skipped


def unskipped(bad: Steps, skipped: Series) -> Steps:
    """The steps with a non-finite value that the loss scaler did not skip."""
    return bad[~np.isin(bad, skipped.steps[skipped.values > 0])]


def lasting(series: Series, seams: Sequence[int]) -> Steps:
    """The non-finite steps of a series without a finite value before the next seam or the end.

    A seam is a return to a checkpoint: finite values after it do not excuse those before.
    """
    parts = np.split(np.arange(len(series)), np.unique(np.searchsorted(series.steps, seams)))
    steps: Steps = series.steps[np.concatenate([_tail(part, np.isfinite(series.values[part])) for part in parts])]
    return steps


def _tail(part: Steps, finite: npt.NDArray[np.bool_]) -> Steps:
    good = np.flatnonzero(finite)
    return part[int(good[-1]) + 1 :] if len(good) else part


def applied(norms: Series, loss: Series | None, every_step: bool) -> Steps:
    """Non-finite gradients that were applied, or that never end, if skipped steps are not recorded.

    An update with such a gradient destroys the weights and every later loss. If the loss stays finite, a loss scaler
    skipped the step, which is ordinary in fp16. If not every step is logged, a point may be a mean, which a single such
    gradient makes infinite: then an endless series proves nothing.
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
    """Which of these steps are followed by a non-finite loss."""
    if loss is None or not len(loss):
        return np.zeros(len(bad), bool)
    index = np.searchsorted(loss.steps, bad, side="right")
    there = index < len(loss)
    return there & ~np.isfinite(loss.values[np.minimum(index, len(loss) - 1)])


def _hidden(loss: Series | None) -> Steps:
    """The last steps with a loss of exactly 0: beside a non-finite gradient this is a hidden NaN."""
    if loss is None:
        return np.array([], np.int64)
    alive = np.flatnonzero(loss.values != 0)
    steps: Steps = loss.steps[int(alive[-1]) + 1 if len(alive) else 0 :]
    return steps
