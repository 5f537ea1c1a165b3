"""Gradients between backward and the step, and a clip threshold from the norms of healthy steps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from steadyrun.errors import UsageError
from steadyrun.signals.curves import Floats
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.store.incident_files import gravity

if TYPE_CHECKING:
    from steadyrun.store.reader import RunReader


# Gradients between the end of backward and the optimizer's step.


def at_backward(run: Signals) -> Points | None:
    """The gradient norm at the end of backward, at the steps with samples by block."""
    parts = [run.points(name) for name in run.matching("block_grad_norm/*") if run.maybe(name) is not None]
    if not parts:
        return None
    steps = parts[0].steps
    for part in parts[1:]:
        steps = np.union1d(steps, part.steps)
    squares = [np.where(np.isin(steps, p.steps), np.interp(steps, p.steps, p.values), 0.0) ** 2 for p in parts]
    return Points("at backward", steps, np.sqrt(np.sum(squares, axis=0)))


def divided_later(run: Signals) -> float | None:
    """The factor by which gradients shrink between the end of backward and the step, apart from clipping."""
    before, norm, applied = at_backward(run), run.maybe("grad_norm"), run.maybe("grad_norm_applied")
    if before is None or norm is None or applied is None:
        return None
    # torch's clip function sees the gradients after a manual division; without clipping the step does.
    left = norm if run.has("clip_threshold") else applied
    now = np.interp(before.steps, left.steps, left.values)
    usable = (now > 0) & (before.values > 0)
    return float(np.median(before.values[usable] / now[usable])) if np.any(usable) else None


# A clip threshold from the gradient norms of healthy steps.


_DIGITS = 2
_QUANTILE, _WINDOW = 0.9, 200


def suggested_clip(norms: Floats, quantile: float) -> float:
    """The `quantile` of the finite norms above zero, to two digits; NaN if there are none.

    A few outliers do not move it.
    """
    usable = norms[np.isfinite(norms) & (norms > 0)]
    return _rounded(float(np.quantile(usable, quantile))) if len(usable) else float("nan")


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")


def suggest_clip(
    run: str | os.PathLike[str] | RunReader,
    *,
    before: int | None = None,
    quantile: float = _QUANTILE,
    window: int = _WINDOW,
) -> float:
    """Suggest a clip threshold: a high quantile of the run's own gradient norms before an incident.

    The norms are those before clipping, of the last `window` recorded steps before step `before` (by default before the
    gravest incident of the run, or its end). With the default `quantile` of 0.9 it clips one ordinary step in ten and
    reduces an outlier to the ordinary size. If the suggestion is above the run's current threshold, the run already
    clips most of its steps, and a lower threshold will not help.
    """
    if not 0 < quantile <= 1:
        raise UsageError(f"quantile is {quantile!r}; set it above 0 and at most to 1")
    if window < 1:
        raise UsageError(f"window is {window!r}; set it to 1 or more")
    view = _opened(run)
    signals = Signals(view)
    if not signals.has("grad_norm"):
        raise UsageError(f"{view.root} has no gradient norms: {MissingSignal('grad_norm').how}")
    series = signals.raw("grad_norm")
    end = _gravest_incident(view) if before is None else before
    norms = series.values if end is None else series.values[series.steps < end]
    threshold = suggested_clip(norms[-window:], quantile)
    if not np.isfinite(threshold):
        raise UsageError(f"{view.root} has no finite gradient norm before step {end}")
    return threshold


def _opened(run: str | os.PathLike[str] | RunReader) -> RunReader:
    from steadyrun.store.reader import RunReader, open_run

    return run if isinstance(run, RunReader) else open_run(run)


def _gravest_incident(view: RunReader) -> int | None:
    """The step of the gravest incident, ranked as replay does."""
    incidents = [(event, event.step) for event in view.events("incident") if event.step is not None]
    ranked = [gravity(event.fields.get("cause"), event.fields.get("severity"), step) for event, step in incidents]
    return min(ranked)[-1] if ranked else None
