"""G2.5: does the value function explain the returns, and are advantages centred?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS, reward_improves
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import (
    ADVANTAGE_MEAN,
    ADVANTAGE_SPREAD,
    EXPLAINED_VARIANCE,
    REWARD_SPREAD,
    last_level,
    metric,
)
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.success import is_reward, words_of
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    if (found := _short_sighted(run, limit) or _off_centre(run, limit)) is not None:
        return found
    explained = metric(run, EXPLAINED_VARIANCE, limit["many"])
    if explained is None:
        raise NotApplicable("no explained variance of a value function was logged often enough")
    half = float(np.median(explained.values[len(explained) // 2 :]))
    measured = {"explained": half}
    words = f"The value function explains {shown(half)} of the returns' variance in the second half"
    if half > limit["nothing"]:
        return Finding("explains", f"{words}.", measured)
    outcome = "unexplained" if reward_improves(run, limit) else "nothing"
    return Finding(outcome, f"{words} (limit {shown(limit['nothing'])}).", measured)


def _short_sighted(run: Signals, limit: Limits) -> Finding | None:
    """A discount that leaves nothing of what comes after a few steps, although episodes last longer."""
    given = [run.declared(name) for name in ("gamma", "discount", "discount_factor")]
    discount = next((value for value in given if value is not None), None)
    if discount is None or discount >= limit["discount"] or not _has_episodes(run, limit):
        return None
    message = f"The declared discount is {shown(discount)} (limit {shown(limit['discount'])}): "
    message += "the advantages leave out what an action leads to later."
    return Finding("short-sighted", message, {"discount": discount})


def _has_episodes(run: Signals, limit: Limits) -> bool:
    """Whether a value function is trained and the return of whole episodes is logged."""
    of_episodes = any(words_of(name) & _EPISODES and is_reward(name) for name in run.own)
    return of_episodes and metric(run, EXPLAINED_VARIANCE, limit["rows"]) is not None


_EPISODES = frozenset({"ep", "episode", "episodic", "episodes"})


def _off_centre(run: Signals, limit: Limits) -> Finding | None:
    """Advantages whose mean is larger than their spread: nearly all actions are pushed the same way."""
    mean, spread = metric(run, ADVANTAGE_MEAN, limit["rows"]), metric(run, ADVANTAGE_SPREAD, limit["rows"])
    spread = spread or metric(run, REWARD_SPREAD, limit["rows"])  # advantages that are not scaled spread like rewards
    if mean is None or spread is None:
        return None
    level, width = last_level(mean), last_level(spread)
    if width <= 0 or abs(level) <= limit["off"] * width:
        return None
    message = f"The mean advantage is {shown(level)} with a standard deviation of {shown(width)}."
    return Finding("off-centre", message, {"mean": level, "spread": width})


QUESTION = Question(
    code="G2.5",
    name="value function explains",
    asks="Does the value function predict the returns, and are the advantages centred at zero?",
    why="Advantages are returns minus the value function's prediction. If it predicts nothing, they are noise; if they "
    "all have one sign, every action becomes more (or less) likely.",
    needs=("explained_variance",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        ERRORS,
        Threshold(
            name="nothing",
            value=0.05,
            unit="explained variance",
            meaning="a value function below this in the second half of the run predicts nothing",
            seed="",
            decision="a constant explains 0; plain PPO reaches 0.3 and more within a few dozen updates",
        ),
        Threshold(
            name="discount",
            value=0.5,
            unit="",
            meaning="a smaller discount leaves less than a tenth after four steps",
            seed="",
            decision="chosen: usual values are 0.9 to 1; a task of single steps has no episodes to log",
        ),
        Threshold(
            name="off",
            value=1,
            unit="standard deviations",
            meaning="advantages with a larger mean are not centred",
            seed="",
            decision="chosen: normalised advantages have a mean of zero",
        ),
    ),
    outcomes=(
        Outcome(name="explains", answer=PASS, meaning="the value function explains part of the returns"),
        Outcome(
            name="unexplained",
            answer=NOTE,
            meaning="the value function explains nothing, but the reward improves",
            fix="Raise the learning rate of the value function: better predictions give less noisy updates.",
        ),
        Outcome(
            name="nothing",
            answer=SUSPECT,
            meaning="the value function explains nothing",
            fix="Raise its learning rate or its weight in the loss, normalise the returns, and check that its targets "
            "are the returns of the same states.",
            experiment="Fit the value function alone on one batch of returns. If it cannot, its inputs, targets or "
            "rate are wrong.",
            may_pass=True,
            explains=("V1.8", "S6"),
        ),
        Outcome(
            name="short-sighted",
            answer=SUSPECT,
            meaning="the discount is so small that only the next rewards count",
            fix="Set the discount (gamma) to 0.99; 0.9 for episodes of a few steps.",
            experiment="Train again with gamma=0.99. If the return rises further, the discount was too small.",
            explains=("V1.8", "G2.2"),
        ),
        Outcome(
            name="off-centre",
            answer=SUSPECT,
            meaning="nearly all advantages have the same sign",
            fix="Subtract the mean (per group or batch), and check the sign of the baseline.",
            experiment="Print the rewards, the baseline and the advantages of one batch. They must satisfy advantage = "
            "reward - baseline.",
            may_pass=True,
            explains=("V1.8",),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
