"""The recorded learning rates and the curves they are compared with, for the questions of C2 and S2."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace

import numpy as np

from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import Curve, SchedulePlan, declared_plan, dry_run, number
from steadyrun.signals.missing import MissingSignal
from steadyrun.signals.progress import learns
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import LimitTable, Points, Signals

SAME = 1e-3  # of the peak: rates closer than this are the same rate
_POINTS = 1001  # of a dry run: more do not change its lowest rate
_ROUNDING = 1e-6  # of a digit
_TEN = 10.0


@dataclass(frozen=True)
class RecordedRates:
    """The recorded rates, and the curves they are compared with.

    After a rollback the scheduler continues from an earlier step, so steps are counted along the path of training.
    """

    run: Signals
    rates: Points
    plan: SchedulePlan | None
    dry: Curve | None  # by scheduler steps since the record began
    recorded: Points  # the same rates by the steps of the run

    @property
    def peak(self) -> float:
        return self.plan.peak if self.plan else float(np.max(self.rates.values)) or 1.0

    @property
    def constant(self) -> bool:
        return float(np.ptp(self.rates.values)) <= SAME * self.peak

    @property
    def counts(self) -> Floats | None:
        """How often the scheduler had been stepped before each recorded rate was used; None if not known."""
        taken = self.run.maybe("scheduler_steps")
        if taken is None or len(taken) < 2:
            return None
        taken = path_of(self.run).along(taken)
        after = np.interp(self.rates.steps, taken.steps, taken.values)
        return np.concatenate([[2 * after[0] - after[1]], after[:-1]])

    @property
    def planned(self) -> Curve | None:
        """The scheduler's dry run over the steps of the run; None if the scheduler's steps are not known.

        NaN at steps that the dry run does not cover.
        """
        expected = self.run.inferred.get("expected_lr")
        if self.dry is None or not isinstance(expected, dict):
            return None
        taken = self.run.maybe("scheduler_steps")
        if taken is None:  # schedules that torch does not step are curves over optimizer steps
            return None if "begun" in expected else self.dry
        begun = number(expected["begun"]) if "begun" in expected else self._begun_with_the_record(taken)
        return None if begun is None else self._by_counts(taken, begun, number(expected.get("steps")))

    def _begun_with_the_record(self, taken: Points) -> float | None:
        """The count before the first step, if the dry run does not give it; None after a resume."""
        if self.run.events("resume") or len(taken) < 2:
            return None
        return float(2 * taken.values[0] - taken.values[1])

    def _by_counts(self, taken: Points, begun: float, length: float | None) -> Curve:
        """The curve by counts at `run.step`, just before or just after which the scheduler was stepped."""
        before = np.concatenate([[min(begun, taken.values[0])], taken.values[:-1]])

        def curve(counts: Floats, at: Floats) -> Floats:
            count = np.interp(at, taken.steps, counts) - begun
            known = (count >= 0) & (count <= (np.inf if length is None else length))
            assert self.dry is not None
            return np.where(known, self.dry(count), np.nan)

        mine = self.recorded
        off = [np.nansum(np.abs(mine.values - curve(counts, mine.steps))) for counts in (before, taken.values)]
        counts = before if off[0] <= off[1] else taken.values
        return lambda at: curve(counts, at)


def rates_of(run: Signals, limit: LimitTable) -> dict[str, Points]:
    """The learning rates by param group; `MissingSignal` if the record rounds them too much."""
    groups = run.family("lr/*")
    if not any(np.any(points.values) for points in groups.values()) and learns(run, limit):
        why = "the recorded learning rate is 0 although the loss falls: it is rounded, or another rate is in use"
        raise MissingSignal("lr/*", why, "log the learning rate with three digits or more")
    if _printed(run, int(limit["digits"])) and all(_one_digit(points, limit["distinct"]) for points in groups.values()):
        why = "the learning rate is printed with too few digits"
        raise MissingSignal("lr/*", why, "log the learning rate with three digits or more")
    return groups


def look(run: Signals, limit: LimitTable) -> RecordedRates:
    """The rates of the param group that the declared peak belongs to, and the declared schedule."""
    groups = rates_of(run, limit)
    peak = run.declared("lr_max")
    # Param groups may have their own rates: the group closest to the declared peak counts, without groups fixed at 0
    # beside others that learn.
    moving = [group for group, points in groups.items() if np.any(points.values)] or list(groups)
    name = min(moving, key=lambda g: abs(float(np.max(groups[g].values)) - peak)) if peak else next(iter(groups))
    dry = dry_run(run.inferred, name)
    total = run.declared("total_steps")
    plan = declared_plan(run.config, _lowest(dry, total) if dry is not None and total else None)
    peaks, off = [float(np.max(points.values)) for points in groups.values()], limit["groups"]
    if plan is not None and min(peaks) < (1 - off) * plan.peak < (1 + off) * plan.peak < max(peaks):
        # Rates on both sides of the declared peak: each group uses a multiple of it.
        mine = groups[name].values
        share = float(np.max(mine)) / plan.peak
        below = float(np.min(mine)) < (1 - off) * plan.floor or share < 1
        plan = replace(plan, peak=share * plan.peak, floor=share * plan.floor if below else plan.floor)
    rates = path_of(run).along(_by_optimizer_steps(run, groups[name], limit["accumulated"]))
    beyond = bool(total and len(rates)) and float(rates.steps[-1]) > (1 + limit["longer"]) * float(total or 0)
    if beyond and not run.has("optimizer_steps"):
        plan = None  # the record may count other steps than the declared ones: micro-batches, samples
    # The run keeps this in its memo: a strong reference back would keep its files open until garbage collection.
    return RecordedRates(weakref.proxy(run), rates, plan, dry, groups[name])


def _printed(run: Signals, digits: int) -> bool:
    """Whether the losses have so few digits that they were printed; without losses this is assumed."""
    loss = run.maybe("loss")
    return loss is None or all(float(f"{value:.{digits - 1}e}") == value for value in loss.values[:_POINTS])


def _one_digit(rates: Points, distinct: float) -> bool:
    """Whether all rates have a single digit: then steps in the curve may come from rounding."""
    values = np.unique(rates.values[rates.values > 0])
    digits = values / _TEN ** np.floor(np.log10(values))
    return len(values) >= distinct and bool(np.all(np.abs(digits - np.rint(digits)) < _ROUNDING))


def _lowest(dry: Curve, total: float) -> float:
    """The lowest rate of the scheduler after its peak; a scheduler that counts epochs gets there many times."""
    curve = dry(np.linspace(0, total, _POINTS))
    return float(np.min(curve[int(np.argmax(curve)) :]))


def _by_optimizer_steps(run: Signals, rates: Points, fewer: float) -> Points:
    """The rates by optimizer steps, if `run.step` was not called once for each."""
    taken = run.maybe("optimizer_steps")
    scaled = run.has("loss_scale")  # steps that a loss scaler skips also count
    if taken is None or scaled or not 0 < float(np.sum(taken.values)) < fewer * len(taken):
        return rates
    counted = np.cumsum(taken.values) - 1 + taken.steps[0]
    return Points(rates.name, np.interp(rates.steps, taken.steps, counted), rates.values)
