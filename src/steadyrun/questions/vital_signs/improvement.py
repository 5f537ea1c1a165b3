"""Whether a record improves at all: what V1.1 asks of a loss that has not come down, and limits of its trends."""

from __future__ import annotations

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import Limits, Threshold
from steadyrun.signals.curves import Floats, chance_of_rise, largest_rise
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import is_held_out, is_reward, successes
from steadyrun.text import shown


def never_improves(run: Signals, limit: Limits, loss: Levels, since: int = 0) -> bool:
    """Whether a long record from the first steps on shows no descent since a stretch, and nothing else that improves.

    One that begins late may be an excerpt of a run that has learned; one that starts from learned weights may stay.
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
    """Whether no test sees a descent, none of some size can hide in the noise, and none came in the first steps."""
    hidden = largest_rise(-levels_since) > limit["hidden"] * abs(loss.start)
    early = loss.start - float(np.median(levels_since)) > limit["fallen"] * abs(loss.start)
    return not hidden and not early and chance_of_rise(-levels_since) > limit["unsure"]


def _is_long(run: Signals, limit: Limits, loss: Levels) -> bool:
    """Whether a loss had the time to fall; an epoch has many steps."""
    counted = run.step_unit == "epoch" or loss.steps >= limit["patience"]
    return counted and loss.points >= limit["points"] and not run.running


def _else_improves(run: Signals, limit: Limits) -> bool:
    """Whether validation, or what the user measures as success, shows any improvement."""
    ways = successes(run) | ({"val_loss": -1} if run.has("val_loss") else {})
    curves = {name: points for name in ways if (points := run.maybe(name)) is not None and len(points) > 1}
    return any(chance_of_rise(ways[name] * points.values) < limit["unsure"] for name, points in curves.items())


def surely_improves(run: Signals, limit: Limits) -> str:
    """In words, which validation loss or success on held-out data improves steadily and beyond its noise; or empty."""
    ways = {name: way for name, way in successes(run).items() if is_held_out(name) and not is_reward(name)}
    for name, way in ({"val_loss": -1} | ways).items():
        points = run.maybe(name)
        if points is None or len(points) < limit["points"]:
            continue
        level = levels(run, name, limit["points"], rises=way > 0)
        gain, lost = way * (level.end - level.start), way * (level.best - level.end)
        clear = gain > max(limit["errors"] * level.error, limit["fallen"] * abs(level.start)) and lost < gain
        if clear and chance_of_rise(way * level.stretches) < limit["steady"]:
            return f"{name} goes from {shown(level.start)} to {shown(level.end)}"
    return ""


STEADY = Threshold(
    name="steady",
    value=0.001,
    unit="probability",
    meaning="a trend that is less likely by chance is steady",
    seed="",
    decision="seven levels that rise throughout are one order of 5040",
)
UNSURE = Threshold(
    name="unsure",
    value=0.05,
    unit="probability",
    meaning="a fall of the loss, or an improvement beside it, that is less likely by chance may be one",
    seed="",
    decision="a loss is called flat only if no test sees a descent",
)
DESCENT_LIMITS = (
    STEADY,
    UNSURE,
    Threshold(
        name="hardly",
        value=0.002,
        unit="fraction of the first loss",
        meaning="a smaller descent is none, however sure it is",
        seed="",
        decision="a tenth of the fall that counts",
    ),
    Threshold(
        name="hidden",
        value=0.15,
        unit="fraction of the first loss",
        meaning="a descent by this much must not hide in the noise of a loss that is called flat",
        seed="",
        decision="fine-tuning falls by about this much; a loss so noisy that it could have is not judged",
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
