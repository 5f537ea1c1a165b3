"""Limits and tests that several of these questions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from steadyrun.questions.form import Limits, Threshold
from steadyrun.signals.curves import Floats
from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import metric, reward_levels
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.success import trains_policy

ROWS = Threshold(
    name="rows",
    value=7,
    unit="rows",
    meaning="with fewer, the question is not answered",
    seed="",
    decision="as for losses: seven values give a test at one in a thousand",
)
MANY = Threshold(
    name="many",
    value=30,
    unit="rows",
    meaning="how long a run may take to show an effect",
    seed="",
    decision="as in V1.8: with fewer rows, noise may hide a change",
)
ERRORS = Threshold(
    name="errors",
    value=6,
    unit="standard errors",
    meaning="smaller changes are noise",
    seed="",
    decision="as in V1.1",
)
SAMPLES = Threshold(
    name="samples",
    value=4,
    unit="samples",
    meaning="how many of the last samples the median is taken over",
    seed="",
    decision="as in V1.2: one batch may be unusual",
)


def of_a_policy(run: Signals, role: str, limit: Limits) -> Points:
    """The series of a role, if the run trains a policy and logs it often enough."""
    points = metric(run, role, limit["rows"]) if trains_policy(run) else None
    if points is None:
        raise NotApplicable(f"no {role} of a policy was logged often enough")
    return points


def reward_improves(run: Signals, limit: Limits) -> bool:
    """Whether the reward ends above its start beyond its noise and keeps most of its gain."""
    reward = reward_levels(run, limit["rows"])
    if reward is None:
        return False
    gained, kept = reward.best - reward.start, reward.end - reward.start
    return kept > limit["errors"] * reward.error and kept > gained / 2


def reward_worsens(run: Signals, limit: Limits) -> bool:
    """Whether the reward ends below its start, or has lost most of its gain, beyond its noise."""
    reward = reward_levels(run, limit["rows"])
    if reward is None:
        return False
    lost = reward.best - reward.end
    return lost > limit["errors"] * reward.error and lost > max(0.0, (reward.best - reward.start) / 2)


def compared(run: Signals) -> float | None:
    """How many scores an example has in a contrastive loss; None if the loss is another."""
    facts = run.inferred.get("objective")
    return number(facts.get("classes")) if isinstance(facts, dict) and facts.get("contrastive") else None


def last_samples(
    run: Signals, name: str, limit: Limits, pick: Callable[[Floats], np.floating[Any]] = np.median
) -> float | None:
    """The median (or what `pick` takes) of the last samples of a series; None if it is too short, or ends too early."""
    points, last = run.maybe(name), limit.count("samples")
    if points is None or len(points) < 2 * last or points.steps[-1] < limit["patience"]:
        return None
    return float(pick(points.values[-last:]))
