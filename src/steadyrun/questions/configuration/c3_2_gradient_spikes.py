"""C3.2: single steps with an enormous gradient."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.curves import Floats, rolling_mean
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import shown

_SHOWN = 5


def find(run: Signals, limit: Limits) -> Finding:
    norms = run.points("grad_norm")
    local = _level_before(norms.values, limit)
    high = np.maximum(limit["times_clip"] * _clip(run), limit["times_local"] * local)
    spikes = norms.where(norms.values > high)
    reach = limit["window"] * max(1.0, norms.spacing)
    most, start = _densest(spikes.steps, reach)
    index = int(np.argmax(norms.values / high))
    worst, allowed = float(norms.values[index]), float(high[index])
    measured = {"spikes": float(most), "largest": worst, "times_local": float(np.max(norms.values / local))}
    window = f"{limit['window']:g} {run.counted(norms)}"
    if most == 0 and (single := _single(run, norms, local, limit)) is not None:
        return single
    if most == 0:
        return Finding(
            "pass", f"The gradient norm closest to its limit is {shown(worst)}; limit {shown(allowed)}.", measured
        )
    there = spikes.where((spikes.steps >= (start or 0)) & (spikes.steps < (start or 0) + reach))
    where = _where(run, there)
    over, largest = shown(float(np.min(high))), shown(float(np.max(there.values)))
    facts = f"{most} gradient norms within {window} are above {over} (the largest is {largest}): {where}"
    if most > limit["count"]:
        return Finding("many", f"{facts}; at most {limit.count('count')} are normal.", measured, start)
    if most == 1:
        facts = f"The gradient norm is {largest} at {where}, above {over}"
    return Finding("few", f"{facts}.", measured, start)


def _single(run: Signals, norms: Points, local: Floats, limit: Limits) -> Finding | None:
    """A step whose gradient stands out from the steps before it without being enormous, and the loss there."""
    times = limit["single"]
    settled = np.arange(len(norms)) >= limit["settled"]
    if not np.any(settled):
        return None
    ratio = np.where(settled, norms.values / local, 0.0)
    index = int(np.argmax(ratio))
    if ratio[index] <= times:
        return None
    step = norms.step_at(index)
    measured = {"spikes": 0.0, "largest": float(norms.values[index]), "times_local": float(ratio[index])}
    message = (
        f"The gradient norm is {shown(norms.values[index])} at step {step}, normally {shown(local[index])} "
        f"({shown(ratio[index])} times, limit {times:g}){_loss_there(run, step, limit.count('few'))}."
    )
    return Finding("single", message, measured, step)


def _loss_there(run: Signals, step: int, few: int) -> str:
    loss = run.maybe("loss")
    index = int(np.searchsorted(loss.steps, step)) if loss is not None else 0
    if loss is None or not 0 < index < len(loss) or loss.step_at(index) != step:
        return ""
    before = float(np.mean(loss.values[max(0, index - few) : index]))
    return f"; the loss is {shown(loss.values[index])}, before it {shown(before)}"


def _clip(run: Signals) -> float:
    clip = run.maybe("clip_threshold")
    return float(clip.values[-1]) if clip is not None else run.declared("clip") or 0.0


def _level_before(norms: Floats, limit: Limits) -> Floats:
    """The mean norm of the steps before each step; for the first steps, the median of the first norms.

    In a record of a few points, the median of the points before each.
    """
    window, few = limit.count("local"), limit.count("few")
    if len(norms) < 2 * few:
        return np.array([np.median(norms[: max(2, index)]) or 1.0 for index in range(len(norms))])
    first = float(np.median(norms[:few])) or float(np.median(norms[:window])) or 1.0
    # A spike among the steps before hardly moves the geometric mean.
    means = np.exp(rolling_mean(np.log(np.maximum(norms, limit["floor"] * first)), window))
    return np.where(np.arange(len(norms)) < few, first, np.concatenate([[first], means[:-1]]))


def _densest(steps: object, window: float) -> tuple[int, int | None]:
    """The most spikes in any window of this many steps, and the first step of that window."""
    starts = np.asarray(steps, float)
    if not len(starts):
        return 0, None
    counts = np.searchsorted(starts, starts + window, side="left") - np.arange(len(starts))
    index = int(np.argmax(counts))
    return int(counts[index]), int(starts[index])


def _where(run: Signals, spikes: Points) -> str:
    batches = run.maybe("batch_index")
    if batches is None:
        return _list("step", spikes.steps)
    return _list("batch", batches.values[np.isin(batches.steps, spikes.steps)])


def _list(what: str, numbers: object) -> str:
    values = np.asarray(numbers, float)
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    ending = "" if len(values) == 1 else "es" if what == "batch" else "s"
    return f"{what}{ending} " + ", ".join(f"{value:.0f}" for value in values[:_SHOWN]) + more


QUESTION = Question(
    code="C3.2",
    name="gradient spikes",
    asks="Does any single step have a gradient norm above 100 (a hundred times the clip threshold)?",
    why="An occasional batch has an enormous gradient and clipping contains it. Several within 200 steps are an "
    "instability, and the batches are worth a look.",
    needs=("grad_norm",),
    panel=3,
    thresholds=(
        Threshold(
            name="times_clip",
            value=100,
            unit="times the clip threshold",
            meaning="gradient norm of a spike",
            seed="100 with clip 1.0",
            decision="the rule of thumb, relative to the clip threshold",
        ),
        Threshold(
            name="times_local",
            value=30,
            unit="times the mean of the steps before",
            meaning="gradient norm of a spike, whatever the clip threshold",
            seed="30 times the rolling mean",
            decision="without it, ordinary steps would be spikes under tight clipping or a summed loss",
            of="times_local",
        ),
        Threshold(
            name="single",
            value=10,
            unit="times the mean of the steps before",
            meaning="a single gradient norm that is a note",
            seed="",
            decision="a public log has a norm of 82 among norms of 4 to 5 with a flat loss; healthy runs reach 5 "
            "times after their start",
        ),
        Threshold(
            name="local",
            value=100,
            unit="steps",
            meaning="how many earlier steps the mean covers",
            seed="100 steps",
            decision="the rule of thumb, unchanged",
        ),
        Threshold(
            name="count",
            value=3,
            unit="spikes",
            meaning="how many spikes one window may have",
            seed="3 in 200 steps",
            decision="the rule of thumb, unchanged",
            of="spikes",
        ),
        Threshold(
            name="window",
            value=200,
            unit="steps",
            meaning="length of that window",
            seed="200 steps",
            decision="the rule of thumb; counted in logged points if the log is sparse",
        ),
        Threshold(
            name="few",
            value=10,
            unit="steps",
            meaning="fewer earlier steps do not give a mean",
            seed="",
            decision="the first steps are compared with the median of the first norms",
        ),
        Threshold(
            name="settled",
            value=100,
            unit="points",
            meaning="earlier points cannot stand out",
            seed="",
            decision="they are part of the start",
        ),
        Threshold(
            name="floor",
            value=1e-9,
            unit="of the first norms",
            meaning="smaller norms count as this in the mean of the earlier steps",
            seed="",
            decision="a norm of 0 would make the geometric mean 0",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="no gradient is enormous"),
        Outcome(
            name="single",
            answer=NOTE,
            meaning="one gradient stands out",
            fix="No action is needed while the loss falls; look at the batch of that step if it happens again.",
        ),
        Outcome(
            name="few",
            answer=NOTE,
            meaning="an enormous gradient at one step or a few",
            fix="No action is needed if gradients are clipped and the loss falls; otherwise clip them and look at the "
            "batch.",
        ),
        Outcome(
            name="many",
            answer=NOTE,
            meaning="enormous gradients come again and again",
            fix="Look at the batches of these steps, and clip gradients (steadyrun.suggest_clip). If they come at "
            "regular intervals, look for what the program does at these steps.",
        ),
    ),
    find=find,
)
