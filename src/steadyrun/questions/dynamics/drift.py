"""The last window of a run, which section D4 judges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.questions.form import Limits, Threshold
from steadyrun.signals.curves import Trend, chance_of_rise, ema, trend
from steadyrun.signals.facts import Facts
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

WINDOW = 200
CERTAIN = 4.5  # |t| of ten block means: 1 in 1,000 series without a trend exceeds it


@dataclass(frozen=True)
class Stretch:
    """The loss over the last steps, its trend, and how far it is above its best."""

    loss: Points
    trend: Trend
    above_best: float
    best_step: int
    window: int
    rising: bool


def last_stretch(run: Signals, limit: Limits) -> Stretch:
    """The window that D4.1 judges, by its limits in the same walk as `limit`."""
    from steadyrun.questions.dynamics import d4_1_upward  # it imports this file

    rule = limit.of(d4_1_upward.QUESTION)
    window, certain, fewest = int(rule["window"]), rule["t"], rule.count("points")
    loss = run.points("loss")
    if len(loss) < rule["losses"] or (run.running and len(loss) < fewest):
        how = "let it run on" if run.running else "train for longer"
        needed = fewest if run.running else rule["losses"]
        raise MissingSignal("loss", f"{len(loss)} losses are recorded; {needed:g} are needed", how)
    span = run.stretch(loss, rule["smooth"], rule.count("smooth_points"))
    key = ("last stretch", window, certain, fewest, span)
    if key in run.memo:
        known: Stretch = run.memo[key]
        return known
    few = len(loss) < fewest
    span_of_last = (
        max(rule.count("losses"), int(rule["ranked"] * len(loss))) if few else run.stretch(loss, window, fewest)
    )
    last = loss.where(slice(max(0, len(loss) - span_of_last), None))
    smooth = ema(loss.values, span)
    best = int(np.argmin(smooth))
    above = float(smooth[-1] - smooth[best]) / (abs(float(smooth[best])) or 1.0)
    slope = trend(last.steps, last.values)
    rising = chance_of_rise(last.values) < rule["chance"] if few else slope.t > certain
    stretch = run.memo[key] = Stretch(last, slope, above, loss.step_at(best), window, rising)
    return stretch


def surely_worse(run: Signals, stretch: Stretch, known: Facts, limit: float) -> str:
    """In words: validation rose with a cross-entropy that must fall; empty otherwise.

    An objective that is made harder on purpose (dropout, temperature, data) raises the training loss alone.
    """
    val = run.maybe("val_loss")
    if val is None or len(val) < 2 or known.classes is None or not known.must_fall or known.summed:
        return ""
    best = int(np.argmin(val.values))
    lowest = float(val.values[best])
    last = float(np.min(val.values[-2:])) if best < len(val) - 2 else float(val.values[-1])
    if last <= (1 + limit) * lowest or float(val.steps[-1]) < stretch.best_step:
        return ""
    return f"Validation rose from {shown(lowest)} (step {val.step_at(best)}) to {shown(last)} (limit {limit:.0%})"


WORSE = Threshold(
    name="worse",
    value=0.03,
    unit="fraction of the best validation loss",
    meaning="how far validation must have risen with the loss",
    seed="",
    decision="dropout, a temperature or data that get harder raise the training loss alone",
)


def change_in(points: Points, start: float) -> float | None:
    """The last value of a series over its value at the start of the window; None if either is missing."""
    if len(points) < 2 or points.steps[0] > start or points.steps[-1] <= start:
        return None
    first = float(np.interp(start, points.steps, points.values))
    return float(points.values[-1]) / first if first else None
