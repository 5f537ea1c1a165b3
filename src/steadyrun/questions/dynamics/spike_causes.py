"""Causes of a spike, one function each; D2.3 tries them in order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.curves import Floats
from steadyrun.signals.intent import regime
from steadyrun.signals.rollbacks import path_of
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.spikes import Spike
from steadyrun.text import counted, normally, percent, shown


def state_lost(run: Signals, limit: Limits) -> Finding | None:
    """A step counter of the optimizer that restarts within the run.

    A fault if the run was resumed there and the declared schedule continues: the checkpoint lacks the optimizer.
    Within one process it may be intended: unfrozen or merged parts get a new optimizer.
    """
    seams = [event.step for event in run.events("resume") if event.step is not None]
    for name in run.matching("step_count/*"):
        counts = run.maybe(name)
        falls = np.flatnonzero(np.diff(counts.values) < 0).tolist() if counts is not None else []
        for fall in falls:
            assert counts is not None
            before, after, now = counts.step_at(fall), counts.step_at(fall + 1), float(counts.values[fall + 1])
            if now > after - before:  # it went back, but not to its start: an older checkpoint, with its state
                continue
            if path_of(run).crosses(before, after):
                continue
            facts = (
                f"The optimizer's step counter falls from {counts.values[fall]:g} (step {before}) to {now:g} "
                f"(step {after})"
            )
            measured = {"fell_from": float(counts.values[fall])}
            resumed = any(before < seam <= after for seam in seams)
            if resumed and _on_plan(run, after, limit):
                message = f"{facts} at a resume, while the learning rate follows the declared schedule."
                return Finding("optimizer-reset", message, measured, after)
            there = "at a resume" if resumed else "without a resume"
            return Finding("optimizer-begins-again", f"{facts}, {there}.", measured, after)
    return None


def _on_plan(run: Signals, start: int, limit: Limits) -> bool:
    """Whether the learning rate follows the declared schedule from a step on."""
    if not run.matching("lr/*") or (plan := known_rates(run, limit).plan) is None:
        return False
    later = known_rates(run, limit).rates.from_step(start)
    off = np.abs(later.values - plan.rate(later.steps))
    return len(later) > 0 and float(np.mean(off)) < limit["on_plan"] * plan.peak


def beyond_plan(run: Signals, limit: Limits) -> Finding | None:
    """A learning rate far above the declared peak: in a sparse log the spike itself may lie between two points."""
    if not run.matching("lr/*") or (plan := known_rates(run, limit).plan) is None or plan.peak <= 0:
        return None
    rates = known_rates(run, limit).rates
    if run.counted(rates) == "steps" or not len(rates):
        return None
    index = int(np.argmax(rates.values))
    times = float(rates.values[index]) / plan.peak
    others = float(np.median(np.abs(rates.values - plan.rate(rates.steps)))) < limit["on_plan"] * plan.peak
    if times <= limit["lr_beyond"] or not others:
        return None
    message = (
        f"The learning rate is {shown(rates.values[index])} at step {rates.step_at(index)}, {shown(times)} times the "
        f"declared peak {shown(plan.peak)} (limit {limit['lr_beyond']:g}); it follows the declared schedule elsewhere."
    )
    return Finding("lr-jump", message, {"lr_jump": times}, rates.step_at(index))


def _rate_jump(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """A learning rate that jumps up at the spike although the declared schedule does not."""
    if not run.matching("lr/*"):
        return None
    rates = known_rates(run, limit).rates
    if len(rates) < 2:
        return None
    start, end = path_of(run).positions(np.array([spike.start_step, spike.peak_step], float))
    around = _between(rates, start - limit["before"] - 1, end)
    if around.stop - around.start < 2:
        return None
    rise = np.diff(rates.values[around])
    index = around.start + int(np.argmax(rise))
    risen = float(np.max(rise))
    peak = float(np.max(rates.values))
    plan = known_rates(run, limit).plan
    slack = limit.count("slack")
    near = rates.steps[max(0, index - slack) : index + 2 + slack]
    meant = float(np.max(np.diff(plan.rate(near)), initial=0.0)) if plan else 0.0
    if peak <= 0 or risen - meant <= limit["lr_jump"] * peak:
        return None
    message = (
        f"The learning rate jumps from {shown(rates.values[index])} to {shown(rates.values[index + 1])} at step "
        f"{rates.step_at(index + 1)}, by {percent(risen / peak)} of its peak (limit {limit['lr_jump']:.0%}). The loss "
        f"rises to {shown(spike.value)} at step {spike.peak_step}, {normally(spike.level, spike.deviation)}."
    )
    outcome = "lr-jump" if plan is not None else "lr-jump-undeclared"
    return Finding(outcome, message, {"lr_jump": risen / peak}, rates.step_at(index + 1))


def _repeated(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """Batches that repeat around the spike, but not elsewhere."""
    hashes = run.maybe("batch_hash")
    if hashes is None:
        return None
    key = ("seen before", limit["recent"])
    if key not in run.memo:
        run.memo[key] = _seen_before(hashes.values, limit["recent"])
    again = run.memo[key]
    around = limit["around"]
    near = _between(hashes, spike.start_step - around, spike.peak_step + around)
    close = int(np.sum(again[near]))
    elsewhere = int(np.sum(again)) - close
    if close < limit["repeats"] or elsewhere > close / limit["elsewhere"]:
        return None
    if int(np.argmax(again)) < around / 2:  # from the start: a small data set, or a single batch on purpose
        return None
    step = int(hashes.steps[near][np.flatnonzero(again[near])[0]])
    message = (
        f"{close} batches from step {step} on repeat one of the {limit['recent']:g} batches before them (limit "
        f"{limit['repeats']:g}), {elsewhere} in the rest of the run. The loss is {shown(spike.value)} at step "
        f"{spike.peak_step}, {normally(spike.level, spike.deviation)}."
    )
    return Finding("duplicate-batch", message, {"repeated": float(close)}, step)


def _seen_before(values: Floats, reach: float) -> npt.NDArray[np.bool_]:
    """Mark each value that also occurs among the `reach` values before it."""
    order = np.argsort(values, kind="stable")
    same = np.diff(values[order]) == 0
    near = np.diff(order) <= reach
    again = np.zeros(len(values), bool)
    again[order[1:][same & near]] = True
    return again


def _long_tail(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """A gradient that stands out with the loss: very far, or less far if one class has most of the loss."""
    times = _gradient_times(run, spike, limit)
    if times is None or times <= min(limit["gradient"], limit["gradient_with_class"]):
        return None
    concentrated = _one_class(run, spike, limit)
    if times <= limit["gradient"] and not (times > limit["gradient_with_class"] and concentrated):
        return None
    most = limit["gradient"] if times > limit["gradient"] else limit["gradient_with_class"]
    facts = f"At step {spike.peak_step}{_batch(run, spike)} the gradient norm is {shown(times)} times its recent mean"
    why = f", and {concentrated}" if concentrated else ""
    return Finding(
        "long-tail-batch",
        f"{facts} (limit {most:g}){why}.",
        {"gradient_times": times},
        spike.peak_step,
    )


def circumstances(run: Signals, spike: Spike, limit: Limits) -> str:
    """In words: the gradient at an unexplained spike, and the class with most of the loss."""
    times, concentrated = _gradient_times(run, spike, limit), _one_class(run, spike, limit)
    parts = [] if times is None else [f"the gradient norm is {shown(times)} times its recent mean"]
    parts += [concentrated] if concentrated else []
    return f" At the spike{_batch(run, spike)}, {' and '.join(parts)}." if parts else ""


def _gradient_times(run: Signals, spike: Spike, limit: Limits) -> float | None:
    norms = run.maybe("grad_norm")
    return None if norms is None else _times_before(norms, spike, limit)


def _between(points: Points, first: float, last: float) -> slice:
    """The indices of the points from one step to another, both included."""
    start, end = np.searchsorted(points.steps, first), np.searchsorted(points.steps, last, side="right")
    return slice(int(start), int(end))


def _times_before(points: Points, spike: Spike, limit: Limits) -> float | None:
    """The largest value during a spike over the mean of the steps before it."""
    around = _between(points, spike.start_step - limit["near"], spike.peak_step)
    before, during = _window_before(points, around, limit), points.values[around]
    if len(before) < limit["fewest"] or not len(during) or np.mean(before) <= 0:
        return None
    return float(np.max(during) / np.mean(before))


def _window_before(points: Points, part: slice, limit: Limits) -> Floats:
    return points.values[max(0, part.start - limit.count("window")) : part.start]


def _one_class(run: Signals, spike: Spike, limit: Limits) -> str:
    """In words: the class whose loss rose far more than the others; empty if there is none."""
    times = {
        name.partition("/")[2]: _times_before(run.points(name), spike, limit)
        for name in run.matching("class_loss/*")
        if run.maybe(name)
    }
    known = {name: value for name, value in times.items() if value is not None}
    if len(known) < 2:
        return ""
    top = max(known, key=lambda name: known[name])
    others = [value for name, value in known.items() if name != top]
    return (
        f"the loss of class {top} is {shown(known[top])} times its recent mean"
        if known[top] > limit["class"] * max(others)
        else ""
    )


def lead(run: Signals, spike: Spike, limit: Limits) -> str:
    """In words: whether updates or the gradient rose before the loss, and how many steps; empty if neither did."""
    names = [*run.matching("update_ratio/*"), "grad_norm"]
    early = [(ahead, name) for name in names if (ahead := _risen_before(run.maybe(name), spike, limit)) is not None]
    if not early:
        return ""
    steps, name = max(early, key=lambda rise: rise[0])
    what = "the gradient norm" if name == "grad_norm" else f"the update of {name.partition('/')[2]}"
    return f" {what[0].upper()}{what[1:]} rose {counted(steps, 'step')} before the loss."


def _risen_before(points: Points | None, spike: Spike, limit: Limits) -> int | None:
    """How many steps before a spike a series first left the range of its recent values."""
    if points is None:
        return None
    ahead = _between(points, spike.start_step - limit["lead"], spike.start_step - 1)
    before = _window_before(points, ahead, limit)
    if len(before) < limit["fewest"]:
        return None
    high = np.mean(before) + limit["clearly"] * np.std(before)
    early = points.steps[ahead][points.values[ahead] > high]
    return spike.start_step - int(early[0]) if len(early) else None


def _overflow(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """An fp16 overflow at the spike."""
    if regime(run) != "fp16":
        return None
    lost = run.not_finite("grad_norm")[0] if run.has("grad_norm") else np.array([], np.int64)
    skips = run.maybe("skipped")
    if skips is not None:
        lost = np.union1d(lost, skips.steps[skips.values > 0].astype(np.int64))
    near = lost[(lost >= spike.start_step - limit["before"]) & (lost <= spike.peak_step)]
    if not len(near):
        return None
    message = (
        f"fp16 overflowed in {counted(len(near), 'step')} from step {near[0]} on, before or at the spike: the loss is "
        f"{shown(spike.value)} at step {spike.peak_step}, {normally(spike.level, spike.deviation)}."
    )
    return Finding("fp16-overflow", message, {"overflows": float(len(near))}, int(near[0]))


def _batch(run: Signals, spike: Spike) -> str:
    batches = run.maybe("batch_index")
    numbers = (
        batches.values[_between(batches, spike.peak_step, spike.peak_step)] if batches is not None else np.array([])
    )
    return f" (batch {numbers[0]:.0f})" if len(numbers) else ""


DIAGNOSES: tuple[Callable[[Signals, Spike, Limits], Finding | None], ...] = (
    _rate_jump,
    _repeated,
    _overflow,
    _long_tail,
)
