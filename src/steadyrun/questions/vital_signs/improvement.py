"""Whether a record improves at all: the tests V1.1 applies to a loss that has not fallen, with their limits."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import Limits, Threshold
from steadyrun.signals.curves import Floats, chance_of_rise, largest_rise
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import is_held_out, is_of_training, is_reward, successes
from steadyrun.text import shown


def course(name: str, start: float, best: float, end: float) -> str:
    """How a series went, such as "Loss fell from 6.3 to 0.472 (best 0.471)"."""
    first, top, last = shown(start), shown(best), shown(end)
    beyond = f" (best {top})" if top not in (first, last) and not min(start, end) < best < max(start, end) else ""
    if first == last:
        return f"{name} is {last} at the start and at the end{beyond}" if beyond else f"{name} stayed at {last}"
    return f"{name} {'fell' if end < start else 'rose'} from {first} to {last}{beyond}"


def within_noise(noise: float) -> str:
    """What follows a change that its noise explains; a window without variance has no noise to name."""
    return f", within its noise (± {shown(noise)})" if noise > 0 else ""


def never_improves(run: Signals, limit: Limits, loss: Levels, since: int = 0) -> bool:
    """Whether a long record shows no descent since the stretch `since`, and no other series improves.

    The record must begin near step 0, since an excerpt may come from a run that has already learned. A run that starts
    from learned weights is exempt.
    """
    levels_since = loss.stretches[since:]
    hardly = float(levels_since[0] - np.min(levels_since)) < limit["hardly"] * abs(loss.start)
    return (
        _is_long(run, limit, loss)
        and known_facts(run, limit).start != LEARNED
        and loss.first_step <= limit["began"] * loss.steps
        and (hardly or _stays(loss, levels_since, limit))
        and not _else_improves(run, limit)
    )


def _stays(loss: Levels, levels_since: Floats, limit: Limits) -> bool:
    """Whether no test finds a descent, the noise is too small to hide one, and none came in the first steps."""
    hidden = largest_rise(-levels_since) > limit["hidden"] * abs(loss.start)
    early = loss.start - float(np.median(levels_since)) > limit["fallen"] * abs(loss.start)
    return not hidden and not early and chance_of_rise(-levels_since) > limit["unsure"]


def _is_long(run: Signals, limit: Limits, loss: Levels) -> bool:
    """Whether a loss had enough steps to fall; an epoch has many steps."""
    counted = run.step_unit == "epoch" or loss.steps >= limit["patience"]
    return counted and loss.points >= limit["points"] and not run.running


def _else_improves(run: Signals, limit: Limits) -> bool:
    """Whether the validation loss or a logged success improves at all."""
    ways = successes(run) | ({"val_loss": -1} if run.has("val_loss") else {})
    curves = {name: points for name in ways if (points := run.maybe(name)) is not None and len(points) > 1}
    return any(chance_of_rise(ways[name] * points.values) < limit["unsure"] for name, points in curves.items())


def surely_improves(run: Signals, limit: Limits) -> str:
    """In words, whether validation or a success improves steadily and beyond its noise; empty if none does."""
    ways = {name: way for name, way in successes(run).items() if _is_evaluated(run, name) and not is_reward(name)}
    for name, way in ({"val_loss": -1} | ways).items():
        points = run.maybe(name)
        if points is None or len(points) < limit["points"]:
            continue
        level = levels(run, name, limit["points"], rises=way > 0)
        gain, lost = way * (level.end - level.start), way * (level.best - level.end)
        clear = gain > max(limit["errors"] * level.error, limit["fallen"] * abs(level.start)) and lost < gain
        if clear and chance_of_rise(way * level.stretches) < limit["steady"]:
            return course(name, level.start, level.best, level.end)
    return ""


def _is_evaluated(run: Signals, name: str) -> bool:
    """Whether a success is one of evaluations: its name says so, or it is measured far more rarely than the loss."""
    points, loss = run.maybe(name), run.maybe("loss")
    rare = points is not None and loss is not None and 2 * len(points) <= len(loss)
    return is_held_out(name) or (rare and not is_of_training(name))


STEADY = Threshold(
    name="steady",
    value=0.001,
    unit="probability",
    meaning="a trend less likely than this by chance counts as steady",
    seed="",
    decision="seven levels that all rise are one of 5,040 possible orders",
)
UNSURE = Threshold(
    name="unsure",
    value=0.05,
    unit="probability",
    meaning="a fall of the loss, or an improvement of another series, less likely than this by chance may be real",
    seed="",
    decision="a loss is called flat only if no test finds a descent",
)
DESCENT_LIMITS = (
    STEADY,
    UNSURE,
    Threshold(
        name="hardly",
        value=0.002,
        unit="fraction of the first loss",
        meaning="a smaller descent does not count, however certain it is",
        seed="",
        decision="a tenth of the smallest fall that counts",
    ),
    Threshold(
        name="hidden",
        value=0.15,
        unit="fraction of the first loss",
        meaning="a loss is called flat only if its noise could not hide a descent of this size",
        seed="",
        decision="fine-tuning falls by about this much; a noisier loss is not judged",
    ),
    Threshold(
        name="began",
        value=0.1,
        unit="of the recorded steps",
        meaning="a record that begins later may be an excerpt of a run that has learned",
        seed="",
        decision="sparse logs have their first point within the first twentieth",
    ),
)
