"""D2.3: what happened in the step of a spike?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steadyrun.questions.form import FAULT, NOTE, Finding, Limits, NotApplicable, Outcome, Question, Threshold, shown
from steadyrun.questions.spiking import find_spikes
from steadyrun.signals.run import Points, Signals
from steadyrun.signals.schedule import declared_plan
from steadyrun.signals.spikes import Spike

_NEAR = 3  # steps before the first flag in which a cause is looked for
_FEW = 10
_ON_PLAN = 0.05


def find(run: Signals, limit: Limits) -> Finding:
    lost = _state_lost(run)
    if lost is not None:
        return lost
    found = find_spikes(run)
    if not found:
        raise NotApplicable("the loss does not spike")
    notes: list[Finding] = []
    for spike in sorted(found, key=lambda each: -each.sigmas):
        for diagnose in DIAGNOSES:
            cause = diagnose(run, spike, limit)
            if cause is not None and QUESTION.outcome(cause.outcome).answer == FAULT:
                return cause
            notes += [] if cause is None else [cause]
    if notes:
        return notes[0]
    largest = max(found, key=lambda each: each.sigmas)
    facts = f"the largest of {len(found)}, at step {largest.peak_step}, is {shown(largest.sigmas)} deviations high"
    measured = {"sigmas": largest.sigmas}
    if largest.sigmas > limit["noise"]:
        message = f"{facts} (noise: up to {limit['noise']:g}), and nothing recorded stands out there."
        return Finding("unexplained", message, measured, largest.peak_step)
    message = f"nothing recorded stands out at any spike; {facts}: within the noise of this run."
    return Finding("noise", message, measured, largest.peak_step)


def _state_lost(run: Signals) -> Finding | None:
    """The optimizer's step counter fell back while the declared schedule went on: its state was lost."""
    plan = declared_plan(run.config)
    rates = run.maybe("lr/0")
    for name in run.matching("step_count/*"):
        counts = run.maybe(name)
        falls = np.flatnonzero(np.diff(counts.values) < 0).tolist() if counts is not None else []
        for fall in falls:
            assert counts is not None
            before, after = counts.step_at(fall), counts.step_at(fall + 1)
            later = rates.from_step(after) if rates is not None else None
            if plan is None or later is None or not len(later):
                continue
            if float(np.mean(np.abs(later.values - plan.rate(later.steps)))) < _ON_PLAN * plan.peak:
                message = (
                    f"the optimizer's step counter falls from {counts.values[fall]:g} (step {before}) to "
                    f"{counts.values[fall + 1]:g} (step {after}), while the learning rate goes on as declared."
                )
                return Finding("optimizer-reset", message, {"fell_from": float(counts.values[fall])}, after)
    return None


def _rate_jump(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """The learning rate jumped up at the spike, and the declared curve does not."""
    rates = run.maybe("lr/0")
    if rates is None or len(rates) < 2:
        return None
    near = (rates.steps[1:] >= spike.start_step - _FEW) & (rates.steps[1:] <= spike.peak_step)
    rise = np.diff(rates.values) * near
    place = int(np.argmax(rise))
    peak = float(np.max(rates.values))
    plan = declared_plan(run.config)
    meant = float(np.max(np.diff(plan.rate(rates.steps[max(0, place - 2) : place + 4])), initial=0.0)) if plan else 0.0
    if peak <= 0 or rise[place] - meant <= limit["lr_jump"] * peak:
        return None
    message = (
        f"the learning rate jumps from {shown(rates.values[place])} to {shown(rates.values[place + 1])} at step "
        f"{rates.step_at(place + 1)} ({shown(rise[place] / peak)} of its peak, limit {limit['lr_jump']:g}); the loss "
        f"rises to "
        f"{shown(spike.value)} at step {spike.peak_step}."
    )
    outcome = "lr-jump" if plan is not None else "lr-jump-undeclared"
    return Finding(outcome, message, {"lr_jump": float(rise[place] / peak)}, rates.step_at(place + 1))


def _repeated(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """The batches around the spike repeat one another, where batches otherwise do not."""
    hashes = run.maybe("batch_hash")
    if hashes is None:
        return None
    seen: dict[float, int] = {}
    again = np.zeros(len(hashes), bool)
    for place, value in enumerate(hashes.values.tolist()):
        again[place] = place - seen.get(value, -(10**9)) <= limit["recent"]
        seen[value] = place
    near = (hashes.steps >= spike.start_step - limit["recent"]) & (hashes.steps <= spike.peak_step + _NEAR)
    close, elsewhere = int(np.sum(again & near)), int(np.sum(again & ~near))
    if close < _NEAR or elsewhere > close / 10:
        return None
    step = int(hashes.steps[np.flatnonzero(again & near)[0]])
    message = (
        f"{close} batches from step {step} on repeat a recent one, and {elsewhere} in the rest of the run; the loss is "
        f"{shown(spike.value)} at step {spike.peak_step}."
    )
    return Finding("duplicate-batch", message, {"repeated": float(close)}, step)


def _long_tail(run: Signals, spike: Spike, limit: Limits) -> Finding | None:
    """The gradient stands out with the loss: by itself, or less so with the loss sitting in one class."""
    norms = run.maybe("grad_norm")
    if norms is None:
        return None
    times = _times_before(norms, spike)
    if times is None:
        return None
    lead = _lead(run, spike)
    where = _batch(run, spike)
    if times > limit["gradient"]:
        message = (
            f"at step {spike.peak_step}{where} the gradient norm is {shown(times)} times its recent mean "
            f"(limit {limit['gradient']:g}){lead}."
        )
        return Finding("long-tail-batch", message, {"gradient_times": times}, spike.peak_step)
    concentrated = _one_class(run, spike, limit["class"])
    if times > limit["gradient_with_class"] and concentrated:
        message = (
            f"at step {spike.peak_step}{where} the gradient norm is {shown(times)} times its recent mean, and "
            f"{concentrated}{lead}."
        )
        return Finding("long-tail-batch", message, {"gradient_times": times}, spike.peak_step)
    return None


def _times_before(points: Points, spike: Spike, window: int = 100) -> float | None:
    """The largest value during a spike over the mean of the steps before it."""
    before = points.values[(points.steps < spike.start_step - _NEAR)][-window:]
    during = points.values[(points.steps >= spike.start_step - _NEAR) & (points.steps <= spike.peak_step)]
    if len(before) < _FEW or not len(during) or np.mean(before) <= 0:
        return None
    return float(np.max(during) / np.mean(before))


def _one_class(run: Signals, spike: Spike, limit: float) -> str:
    """Which class the loss sits in, where one rose far more than the others."""
    times = {
        name.partition("/")[2]: _times_before(run.points(name), spike)
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
        if known[top] > limit * max(others)
        else ""
    )


def _lead(run: Signals, spike: Spike) -> str:
    """By how many steps the gradient rose before the loss."""
    norms = run.maybe("grad_norm")
    if norms is None:
        return ""
    before = norms.values[norms.steps < spike.start_step - 20][-100:]
    if len(before) < _FEW:
        return ""
    high = np.mean(before) + 3 * np.std(before)
    early = norms.steps[
        (norms.values > high) & (norms.steps >= spike.start_step - 20) & (norms.steps < spike.start_step)
    ]
    return f"; it rose {spike.start_step - int(early[0])} steps before the loss" if len(early) else ""


def _batch(run: Signals, spike: Spike) -> str:
    batches = run.maybe("batch_index")
    found = batches.values[batches.steps == spike.peak_step] if batches is not None else np.array([])
    return f" (batch {found[0]:.0f})" if len(found) else ""


DIAGNOSES: tuple[Callable[[Signals, Spike, Limits], Finding | None], ...] = (_rate_jump, _repeated, _long_tail)

QUESTION = Question(
    code="D2.3",
    name="cause of a spike",
    asks="What else happened at the spike: in the gradient, the learning rate, the batch, the optimizer's state?",
    why="The four usual causes leave different traces: a hard batch a huge gradient, a schedule bug a jump of the "
    "rate, a "
    "loader bug repeated batches, a resume a step counter that starts again.",
    needs=("loss", "grad_norm", "lr/*", "batch_hash", "step_count/*"),
    panel=3,
    thresholds=(
        Threshold(
            "noise",
            6,
            "deviations",
            "height up to which a spike may be noise",
            "",
            "healthy runs of 2,000 steps reach 3 to 5.4",
            "sigmas",
        ),
        Threshold(
            "gradient",
            30,
            "times the mean before",
            "gradient of a long-tail batch",
            "30 times",
            "as specified",
            "gradient_times",
        ),
        Threshold(
            "gradient_with_class",
            5,
            "times the mean before",
            "the same, with the loss in one class",
            "5 times with rare tokens",
            "as specified",
        ),
        Threshold(
            "class",
            2,
            "times the others' rise",
            "how far one class must rise above the others",
            "",
            "the classes of a healthy run rise together",
        ),
        Threshold(
            "lr_jump",
            0.2,
            "share of the peak",
            "rise of the learning rate in one step",
            "a jump",
            "as for C2.1",
            "lr_jump",
        ),
        Threshold(
            "recent",
            100,
            "steps",
            "how far back a batch may be repeated",
            "a recent batch",
            "longer distances are epochs",
        ),
    ),
    outcomes=(
        Outcome("unexplained", NOTE, "a spike far beyond noise without a cause in what was recorded"),
        Outcome("noise", NOTE, "within the noise of this run"),
        Outcome(
            "long-tail-batch",
            NOTE,
            "a batch with a huge gradient",
            "Look at that batch; mix rare examples into all batches (stratified batching), or lower the clip "
            "threshold.",
        ),
        Outcome("lr-jump-undeclared", NOTE, "the learning rate jumped; no schedule is declared to compare with"),
        Outcome(
            "lr-jump",
            FAULT,
            "the learning rate jumped where the declared schedule does not",
            "Follow the declared schedule: look at what happens to the scheduler at that step.",
        ),
        Outcome(
            "duplicate-batch",
            FAULT,
            "the loader repeated batches",
            "Look at the sampler and at what prefetches: an iterator "
            "made anew, or a worker that returns the same buffer.",
        ),
        Outcome(
            "optimizer-reset",
            FAULT,
            "the optimizer lost its state",
            "Save and load optimizer.state_dict() with the checkpoint.",
        ),
    ),
    find=find,
)
