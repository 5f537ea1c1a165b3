"""Faults of a learning-rate curve, one function each; C2.1 tries them in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import (
    SchedulePlan,
    agreement,
    distance,
    horizon_factor,
    largest_jump,
    stairs,
    time_factor,
)
from steadyrun.signals.learning_rates import RecordedRates
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import counted, percent, shown

_POINTS = 1000  # of a declared curve: more do not change the step at which it reaches its minimum
# Judged by the recorded part of the curve: the rest may show another reason, or none.
FITTED = frozenset({"stepped-too-often", "stepped-too-seldom", "horizon-too-short", "horizon-too-long", "other-curve"})


def zero(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    if np.any(recorded.rates.values):
        return None
    return Finding(
        "zero",
        f"The learning rate is 0 at all {len(recorded.rates)} recorded steps; the declared peak is {shown(plan.peak)}.",
        step=recorded.rates.step_at(0),
        may_pass=_young(recorded, plan, limit),
    )


def _young(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> bool:
    """Whether the run goes on, and a scheduler that is stepped once per epoch may not have been stepped yet.

    A warmup takes at least an epoch, and the first of two epochs ends at half of the run.
    """
    first_epoch = plan.warmup if plan.warmup else plan.steps / 2
    return recorded.run.unfinished and float(recorded.rates.steps[-1]) <= limit["first_epoch"] * first_epoch


def never_stepped(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    if not recorded.constant:
        return None
    varies = float(np.ptp(plan.rate(recorded.rates.steps))) / plan.peak
    counts = recorded.counts
    stepped = counts is not None and float(np.ptp(counts)) > 0
    if varies <= limit["close"] or stepped or _young(recorded, plan, limit):
        return None
    rebuilt = recorded.run.events("optimizer-replaced")
    why = f" Another optimizer took over at step {rebuilt[0].step}." if rebuilt else ""
    return Finding(
        "never-stepped",
        f"The learning rate stays at {shown(recorded.rates.values[0])} for {counted(len(recorded.rates), 'step')}; the "
        f"declared schedule is {plan.shape} from {shown(plan.peak)} to {shown(plan.floor)}.{why}",
        step=recorded.rates.step_at(0),
    )


def starts_at_peak(rates: Points, warmup: float, peak: float, limit: Limits) -> bool:
    early = rates.values[rates.steps < warmup / 2]
    return len(early) >= 2 and bool(np.min(early) >= limit["at_peak"] * peak)


def no_warmup(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    missing = plan.warmup > 1 and starts_at_peak(recorded.rates, plan.warmup, plan.peak, limit)
    return warmup_missing(recorded, plan.warmup) if missing else None


def warmup_missing(recorded: RecordedRates, warmup: float) -> Finding:
    first = float(recorded.rates.values[0])
    return Finding(
        "no-warmup",
        f"The learning rate is {shown(first)} at step {recorded.rates.step_at(0)}, {percent(first / recorded.peak)} of "
        f"its peak; the declared warmup takes {warmup:g} steps.",
        {"first_share": first / recorded.peak},
        recorded.rates.step_at(0),
    )


def agrees(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    words = f"{plan.shape}, warmup {plan.warmup}" if plan.warmup else plan.shape
    after = _after_warmup(recorded, plan)
    if len(after) < limit["rates"]:
        return _still_warming(recorded, plan, limit, words)
    share = agreement(after.steps, after.values, plan.rate, plan.peak, limit["close"])
    if share >= limit["share"]:
        message = f"follow the declared schedule ({words}, peak {shown(plan.peak)}) at {percent(share)} of the steps"
        return Finding("pass", f"The recorded rates {message}.", {"agreeing": share})
    of_stairs = stairs(after.steps, after.values, plan.rate, plan.peak, limit)
    if of_stairs is not None and of_stairs >= limit["share"]:
        message = (
            f"follow the declared schedule ({words}, peak {shown(plan.peak)}) in steps, as rates set once per epoch do"
        )
        return Finding("pass", f"The recorded rates {message}.", {"agreeing": of_stairs})
    return _by_epochs(recorded, plan, limit, words)


def _by_epochs(recorded: RecordedRates, plan: SchedulePlan, limit: Limits, words: str) -> Finding | None:
    """A pass if the scheduler is stepped once per epoch and its curve ends near the declared end."""
    counts = recorded.counts
    if counts is None or recorded.dry is None or not plan.decays or not own_curve(recorded, limit):
        return None
    speed = _speed(recorded.rates.steps, counts) if float(np.ptp(counts)) > 0 else 0.0
    if not 0 < speed < limit["per_epoch"]:
        return None
    ahead = np.arange(0, plan.steps * speed * 2 + 2)
    ends = float(np.argmin(recorded.dry(ahead))) / speed
    if not (1 - limit["horizon"]) * plan.steps <= ends <= plan.steps / (1 - limit["horizon"]):
        return None
    message = (
        f"The rates follow the scheduler ({words}), which is stepped every {1 / speed:.0f} steps and ends near step "
        f"{ends:.0f}"
    )
    return Finding("pass", f"{message}; {plan.steps} steps are declared.", {"agreeing": 1.0})


def _after_warmup(recorded: RecordedRates, plan: SchedulePlan) -> Points:
    """The rates after the warmup; C2.2 judges the warmup itself."""
    return recorded.rates.from_step(2 * plan.warmup if plan.warmup > 1 else 0)


def _still_warming(recorded: RecordedRates, plan: SchedulePlan, limit: Limits, words: str) -> Finding | None:
    inside = recorded.rates.values
    meant = min(float(plan.rate(recorded.rates.steps[-1:])[0]), plan.peak)
    if float(inside[-1]) < limit["late"] * meant or float(np.max(inside)) > limit["over"] * plan.peak:
        return None
    return Finding("pass", f"So far the recorded rates warm up as declared ({words}, peak {shown(plan.peak)}).")


def upside_down(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    """A rate that rises in the shape of the declared decay."""
    after = _after_warmup(recorded, plan)
    if len(after) < limit["rates"] or not plan.decays:
        return None
    mirrored = agreement(
        after.steps, after.values, lambda at: plan.peak + plan.floor - plan.rate(at), plan.peak, limit["close"]
    )
    first, last = float(after.values[0]), float(after.values[-1])
    if mirrored < limit["share"] or last - first < limit["close"] * plan.peak:
        return None
    message = (
        f"The learning rate rises from {shown(first)} at step {after.step_at(0)} to {shown(last)} at step "
        f"{after.step_at(len(after) - 1)}: the declared {plan.shape} upside down."
    )
    return Finding("upside-down", message, {"mirrored": mirrored}, after.step_at(0))


def too_early(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    """A rate set once per epoch that has changed too few times to compare."""
    changes = int(np.count_nonzero(np.diff(recorded.rates.values)))
    over = float(np.max(recorded.rates.values)) > limit["over"] * plan.peak
    few = min(limit["few_changes"], len(recorded.rates) / limit["stair"])
    if not recorded.run.unfinished or over or changes > few:
        return None
    return Finding(
        "too-early",
        f"The learning rate has {counted(changes, 'change')} in {counted(len(recorded.rates), 'step')}: too few to "
        "compare with the declared schedule.",
    )


def begun_elsewhere(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    """A record that begins partway through the schedule, as step counts of scheduler or optimizer show: a resume."""
    first = recorded.rates.where(slice(0, limit.count("rates")))
    if agreement(first.steps, first.values, plan.rate, plan.peak, limit["close"]) == 1:
        return None
    done = steps_done(recorded.run, float(first.steps[0]))
    fits = distance(recorded.rates.values, plan.rate(recorded.rates.steps + done), plan.peak)
    if done < limit["rates"] or fits > limit["fits_roughly"]:
        return None
    message = f"The recorded rates follow the declared schedule from step {done} on: the run continues an earlier one."
    return Finding("begun-elsewhere", message, {"begun_at": float(done)})


def steps_done(run: Signals, first: float) -> int:
    """How many steps the scheduler or the optimizer had taken before the record begins."""
    counts = [run.maybe(name) for name in ("scheduler_steps", "step_count/0")]
    known = [points for points in counts if points is not None]
    return max((int(points.values[0] - 1 - (points.steps[0] - first)) for points in known), default=0)


def restarted(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    for event in recorded.run.events("resume"):
        after = recorded.rates.from_step(event.step or 0)
        if event.step and len(after) >= limit["rates"]:
            again = distance(after.values, plan.rate(after.steps - event.step), plan.peak)
            went_on = distance(after.values, plan.rate(after.steps), plan.peak)
            if again < limit["fits"] < went_on:
                message = (
                    f"After the resume at step {event.step} the schedule starts again: the learning rate is "
                    f"{shown(after.values[1])} at step {after.step_at(1)}; the declared schedule gives "
                    f"{shown(plan.rate(after.steps[1:2])[0])}."
                )
                return Finding("restarted", message, step=event.step)
    return None


def _speed(steps: Floats, counts: Floats) -> float:
    """Scheduler steps per step, from the first change of the count to the last."""
    changes = np.flatnonzero(np.diff(counts))
    if len(changes) < 2:
        return float(np.ptp(counts) / np.ptp(steps))
    first, last = changes[0] + 1, changes[-1] + 1
    return float((counts[last] - counts[first]) / (steps[last] - steps[first]))


def wrong_count(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    counts = recorded.counts
    steps = recorded.rates.steps
    if counts is not None and float(np.ptp(steps)) > 0:
        factor = _speed(steps, counts)
        at = counts - counts[0] + steps[0]
        planned = at <= plan.steps  # after its end a curve may do anything: a cosine rises again
        if int(np.sum(planned)) < limit["rates"]:
            return None
        fits = distance(recorded.rates.values[planned], plan.rate(at[planned]), plan.peak)
    else:
        factor, fits = time_factor(steps, recorded.rates.values, plan.rate, plan.peak)
        if steps[-1] <= plan.warmup or horizon_factor(steps, recorded.rates.values, plan)[1] <= fits:
            return None  # a longer warmup or another length also explains it
    if fits > limit["fits_roughly"] or limit["slow"] < factor < limit["fast"] or factor <= 0:
        return None
    often = factor > 1
    rate = f"{shown(factor)} times per step" if often else f"once every {shown(1 / factor)} steps"
    speed = f"{shown(factor)} times too fast" if often else f"{shown(1 / factor)} times too slowly"
    return Finding(
        "stepped-too-often" if often else "stepped-too-seldom",
        f"The scheduler is stepped {rate}: the schedule runs {speed}.",
        {"factor": factor},
        recorded.rates.step_at(0),
    )


def wrong_horizon(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    if not plan.decays:
        return None
    factor, fits = horizon_factor(recorded.rates.steps, recorded.rates.values, plan)
    if fits <= limit["fits"] and not 1 - limit["horizon"] < factor < 1 / (1 - limit["horizon"]):
        length = f"{shown(plan.steps * factor)} steps; {plan.steps} are declared"
        if factor < 1:
            return Finding("horizon-too-short", f"The decay ends after about {length}.", {"horizon": factor})
        return Finding("horizon-too-long", f"The decay would take about {length}.", {"horizon": factor})
    return _reaches_floor_early(recorded, plan, limit)


def _reaches_floor_early(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    """A minimum that comes far too early, whatever the curve does before and after (a cosine rises again)."""
    low = plan.floor + limit["floor"] * (plan.peak - plan.floor)
    all_steps = np.arange(plan.warmup, plan.steps + 1, max(1, plan.steps // _POINTS)).astype(float)
    meant = float(all_steps[np.argmax(plan.rate(all_steps) <= low)])
    after = recorded.rates.from_step(plan.warmup)
    at = after.steps[after.values <= low]
    jump = largest_jump(after.steps, after.values, plan.rate(after.steps), plan.peak, limit.count("slack"))
    smooth = jump is None or jump.size <= limit["jump"] or own_curve(recorded, limit)
    if not len(at) or at[0] >= (1 - limit["horizon"]) * meant or not smooth:
        return None
    return Finding(
        "horizon-too-short",
        f"The learning rate reaches its minimum at step {at[0]:.0f}; the declared schedule does at step {meant:.0f}.",
        {"horizon": float(at[0]) / meant},
        int(at[0]),
    )


def own_curve(recorded: RecordedRates, limit: Limits) -> bool:
    """Whether the rates match a dry run of the scheduler: then a jump belongs to its curve."""
    if recorded.dry is None:
        return False
    steps = recorded.rates.steps
    counts = steps - steps[0] if recorded.counts is None else recorded.counts - recorded.counts[0]
    return agreement(counts, recorded.rates.values, recorded.dry, recorded.peak, limit["close"]) >= limit["share"]


def jumps(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    rates = recorded.rates
    jump = largest_jump(rates.steps, rates.values, plan.rate(rates.steps), plan.peak, limit.count("slack"))
    if jump is None or jump.size <= limit["jump"]:
        return None
    return Finding(
        "discontinuous",
        f"The learning rate jumps from {shown(jump.before)} to {shown(jump.after)} at step {jump.step}, by "
        f"{percent(jump.size)} of the peak (limit {limit['jump']:.0%}); the declared schedule is {plan.shape}.",
        {"jump": jump.size},
        jump.step,
    )


def late_warmup(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding | None:
    """A rate that still rises after the end of the warmup; C2.2 judges how far it has come."""
    rising = recorded.rates.where(recorded.rates.steps <= plan.warmup)
    if plan.warmup < 1 or len(rising) < 2:
        return None
    expected = float(plan.rate(rising.steps[-1:])[0])
    if expected <= 0:
        return None
    reached = float(rising.values[-1]) / expected
    if reached > 1 - limit["close"] or np.any(np.diff(rising.values) < 0) or not np.ptp(rising.values):
        return None
    if len(rising) == len(recorded.rates):
        message = f"The learning rate is at {percent(reached)} of the declared rate at step {rising.step_at(-1)}."
        return Finding("late-warmup", message, step=rising.step_at(-1))
    after = recorded.rates.from_step(plan.warmup)
    top = int(np.argmax(after.values))
    if np.any(np.diff(after.values[top:]) > 0) or after.values[top] <= rising.values[-1]:
        return None
    return Finding(
        "late-warmup",
        f"The learning rate rises until step {after.step_at(top)}; the declared warmup ends at step {plan.warmup}.",
        step=plan.warmup,
    )


def other(recorded: RecordedRates, plan: SchedulePlan, limit: Limits) -> Finding:
    expected = plan.rate(recorded.rates.steps)
    off = np.abs(recorded.rates.values - expected) / plan.peak
    warming = (recorded.rates.steps < 2 * plan.warmup) & (recorded.rates.values <= limit["over"] * plan.peak)
    far = float(np.mean((off > limit["far"]) & ~warming))
    index = int(np.argmax(off))
    message = (
        f"The learning rate is {shown(recorded.rates.values[index])} at step {recorded.rates.step_at(index)}; the "
        f"declared schedule ({plan.shape}) gives {shown(expected[index])}."
    )
    if far > 0:
        message += f" {percent(far)} of the steps are off by more than {limit['far']:.0%} of the peak."
    outcome = "other-curve" if far > 1 - limit["share"] else "deviates"
    return Finding(outcome, message, {"far": far}, recorded.rates.step_at(index))


Diagnosis = Callable[[RecordedRates, SchedulePlan, Limits], Finding | None]

IN_ORDER: tuple[Diagnosis, ...] = (
    zero,
    never_stepped,
    begun_elsewhere,
    no_warmup,
    agrees,
    upside_down,
    restarted,
    too_early,
    wrong_count,
    wrong_horizon,
    late_warmup,
    jumps,
    other,
)
