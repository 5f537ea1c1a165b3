"""The curves of the regular and the irregular class, which the questions of S7 compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.curves import Floats, ema
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.progress import SPAN
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

_QUARTER = 4
_FAMILIES = {"class_loss": SPAN, "val_class_loss": 1}  # with the span of their averages


@dataclass(frozen=True)
class Race:
    """The smoothed losses of both classes at the steps where both are known; the first quarter is left out."""

    steps: Floats
    regular: Floats
    irregular: Floats
    source: str

    @property
    def lag(self) -> Floats:
        """By how much the irregular loss is above the regular one, as a share of it."""
        return (self.irregular - self.regular) / self.regular

    @property
    def leads(self) -> float:
        """The share of the run in which the regular class is ahead."""
        return float(np.mean(self.lag > 0))

    @property
    def words(self) -> str:
        return (
            f"{self.source}: regular {shown(self.regular[-1])}, irregular {shown(self.irregular[-1])} at step "
            f"{self.steps[-1]:.0f}; irregular lags by {float(np.mean(self.lag)):.1%} on average, and regular is ahead "
            f"in {self.leads:.0%} of the run"
        )


def race(run: Signals, fewest: float) -> Race:
    """The two curves, of at least `fewest` points: of training if recorded at every step, else of validation."""
    key = ("race", fewest)
    if key in run.memo:
        known: Race = run.memo[key]
        return known
    for family, span in _FAMILIES.items():
        regular, irregular = run.maybe(f"{family}/regular"), run.maybe(f"{family}/irregular")
        if regular is not None and irregular is not None:
            curves = run.memo[key] = _race(run, family, regular, irregular, span, fewest)
            return curves
    raise NotApplicable("the run names no regular and irregular class")


def are_named(run: Signals) -> bool:
    """Whether the run is about a regular and an irregular class: it says so by recording their losses."""
    return any(run.has(f"{family}/regular") and run.has(f"{family}/irregular") for family in _FAMILIES)


def _race(run: Signals, family: str, regular: Points, irregular: Points, span: int, fewest: float) -> Race:
    if not np.array_equal(regular.steps, irregular.steps):  # a batch may hold examples of one class alone
        both = np.intersect1d(regular.steps, irregular.steps)
        regular, irregular = (points.where(np.isin(points.steps, both)) for points in (regular, irregular))
    steps, first, second = regular.steps, ema(regular.values, span), ema(irregular.values, span)
    later = slice(len(steps) // _QUARTER, None)
    curves = Race(steps[later], first[later], second[later], family)
    if len(curves.steps) < fewest:
        if run.running:
            raise MissingSignal(
                f"{family}/*", f"only {len(steps)} losses of both classes are recorded", "let it run on"
            )
        raise NotApplicable(f"only {len(steps)} losses of both classes are recorded")
    if float(np.min(curves.regular)) <= 0:
        raise NotApplicable("losses that are not positive have no lag as a share")
    return curves
