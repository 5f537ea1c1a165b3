"""The loss curves of the regular and the irregular class, for the questions of S7."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.curves import Floats, ema
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import SPAN
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent, shown

_QUARTER = 4
_FAMILIES = {"class_loss": SPAN, "val_class_loss": 1}  # with the span of their averages


@dataclass(frozen=True)
class Race:
    """The smoothed losses of both classes at their common steps, without the first quarter."""

    steps: Floats
    regular: Floats
    irregular: Floats
    source: str

    @property
    def lag(self) -> Floats:
        """How far the irregular loss is above the regular loss, as a fraction of it."""
        return (self.irregular - self.regular) / self.regular

    @property
    def leads(self) -> float:
        """The fraction of the run in which the regular class is ahead."""
        return float(np.mean(self.lag > 0))

    @property
    def words(self) -> str:
        return (
            f"{self.source}: regular {shown(self.regular[-1])}, irregular {shown(self.irregular[-1])} at step "
            f"{self.steps[-1]:.0f}; irregular lags by {percent(float(np.mean(self.lag)))} on average, and regular is "
            f"ahead in {percent(self.leads)} of the run"
        )


def race(run: Signals, fewest: float) -> Race:
    """The two curves, with at least `fewest` points: of training if recorded, otherwise of validation."""
    key = ("race", fewest)
    if key in run.memo:
        known: Race = run.memo[key]
        return known
    for family, span in _FAMILIES.items():
        regular, irregular = run.maybe(f"{family}/regular"), run.maybe(f"{family}/irregular")
        if regular is not None and irregular is not None:
            curves = run.memo[key] = _race(run, family, regular, irregular, span, fewest)
            return curves
    raise NotApplicable("the run does not record a regular and an irregular class")


def are_named(run: Signals) -> bool:
    """Whether the run records the losses of a regular and an irregular class."""
    return any(run.has(f"{family}/regular") and run.has(f"{family}/irregular") for family in _FAMILIES)


def _race(run: Signals, family: str, regular: Points, irregular: Points, span: int, fewest: float) -> Race:
    if not np.array_equal(regular.steps, irregular.steps):  # a batch may have examples of one class only
        both = np.intersect1d(regular.steps, irregular.steps)
        regular, irregular = (points.where(np.isin(points.steps, both)) for points in (regular, irregular))
    steps, first, second = regular.steps, ema(regular.values, span), ema(irregular.values, span)
    later = slice(len(steps) // _QUARTER, None)
    curves = Race(steps[later], first[later], second[later], family)
    if len(curves.steps) < fewest:
        if run.running:
            raise MissingSignal(
                f"{family}/*", f"only {len(steps)} losses of both classes are recorded so far", "let it run on"
            )
        raise NotApplicable(f"only {len(steps)} losses of both classes are recorded")
    if float(np.min(curves.regular)) <= 0:
        raise NotApplicable("the lag is a fraction of the loss, which is not positive")
    return curves
