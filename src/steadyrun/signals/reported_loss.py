"""The training loss that a script prints or logs, compared with the loss on which backward started.

A script may report the loss of one step, a mean since its last report, or a smoothed one, and before or after the
optimizer has stepped. What is compared is therefore the factor between both, over many reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steadyrun.records import Series
from steadyrun.signals.curves import Floats
from steadyrun.signals.run_signals import Points

_NEXT = 1  # steps: a report before `optimizer.step()` is about the step that comes


@dataclass(frozen=True)
class Factor:
    """A reported loss relative to one reading of the recorded loss."""

    reading: str
    times: float  # median over the reports
    spread: float  # median distance from it, relative to it
    reports: int


def factors(reported: Points, loss: Points) -> list[Factor]:
    """The factor under each reading: the step before the report, the one after it, and the mean since the last."""
    at = np.searchsorted(loss.steps, reported.steps, side="right") - 1
    readings = {
        "the loss of the step": _picked(loss.values, at),
        "the loss of the next step": _picked(loss.values, at + _NEXT),
        "the mean since the last report": _means(loss.values, at, 0),
        "the mean up to the next step": _means(loss.values, at, _NEXT),
    }
    found = (_factor(name, reported.values, values) for name, values in readings.items())
    return [each for each in found if each is not None]


def hidden(reported: Series, loss: Series) -> npt.NDArray[np.int64]:
    """Steps within a stretch of non-finite losses at which finite, changing losses were reported.

    The stretch counts without its ends, for a report may be about the step before or after it. A value that does not
    change may be an old one that is printed again.
    """
    bad = ~np.isfinite(loss.values)
    inside = bad & np.r_[False, bad[:-1]] & np.r_[bad[1:], False]
    finite = np.isfinite(reported.values) & np.isin(reported.steps, loss.steps[inside])
    steps = reported.steps[finite].astype(np.int64)
    return steps if len(np.unique(reported.values[finite])) > 1 else steps[:0]


def _picked(values: Floats, at: npt.NDArray[np.int64]) -> Floats:
    there = (at >= 0) & (at < len(values))
    return np.where(there, values[np.clip(at, 0, len(values) - 1)], np.nan)


def _means(values: Floats, at: npt.NDArray[np.int64], later: int) -> Floats:
    """The mean of the losses from one report up to the next."""
    total = np.r_[0.0, np.cumsum(values)]
    ends = np.clip(at + later + 1, 0, len(values))
    starts = np.r_[0, ends[:-1]]
    counts = ends - starts
    means: Floats = np.where(counts > 0, (total[ends] - total[starts]) / np.maximum(counts, 1), np.nan)
    return means


def _factor(reading: str, reported: Floats, values: Floats) -> Factor | None:
    usable = np.isfinite(values) & np.isfinite(reported) & (np.abs(values) > 0)
    if not np.any(usable):
        return None
    ratios = reported[usable] / values[usable]
    times = float(np.median(ratios))
    spread = float(np.median(np.abs(ratios - times))) / abs(times) if times else float("inf")
    return Factor(reading, times, spread, int(usable.sum()))
