"""G2.1: do the rewards within a group differ?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, ROWS, reward_improves
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import DEAD_GROUPS, REWARD_SPREAD, last_level, metric, reward_levels
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent, shown

_FIFTH = 5


def find(run: Signals, limit: Limits) -> Finding:
    dead = _without_variance(run, limit)
    if dead is None:
        raise NotApplicable("no spread of rewards within groups was logged")
    measured = {"dead": dead}
    if dead < limit["dead"]:
        return Finding("vary", f"{percent(dead)} of the last groups have equal rewards.", measured)
    reward = reward_levels(run, limit["rows"])
    level = "" if reward is None else f" The mean reward is {shown(reward.end)}."
    message = f"{percent(dead)} of the last groups have equal rewards (limit {percent(limit['dead'])}).{level}"
    if reward is not None:
        measured["reward"] = reward.end
    if reward is not None and 0 <= reward.end < limit["kept"] * reward.start:
        words = f"{message[:-1]}; it was {shown(reward.start)} at the start."
        return Finding("lost", words, measured | {"start": reward.start})
    if reward is not None and reward_improves(run, limit):
        return Finding("solved", message, measured)
    high = reward is not None and reward.end > 0 and reward.end >= reward.best - limit["near"] * abs(reward.best)
    return Finding("all-right" if high else "all-wrong", message, measured)


def _without_variance(run: Signals, limit: Limits) -> float | None:
    """The fraction of recent groups whose rewards are all equal."""
    dead = metric(run, DEAD_GROUPS, limit["rows"])
    if dead is not None:
        return last_level(dead)
    spread = metric(run, REWARD_SPREAD, limit["rows"])
    return None if spread is None else float(np.mean(_last(spread) <= limit["equal"]))


def _last(points: Points) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return points.values[-max(1, len(points) // _FIFTH) :]


# With equal rewards every advantage is zero, and without another term so is the loss.
_FOLLOWS = ("V1.8", "C4", "S", "V1.1", "V1.4", "D1.1:turned-zero")
QUESTION = Question(
    code="G2.1",
    name="groups vary",
    asks="Do the rewards of the answers to one prompt differ?",
    why="GRPO and RLOO compare the answers within a group. If all have the same reward, every advantage is zero and "
    "nothing is learned from that prompt.",
    needs=("frac_reward_zero_std",),
    panel=1,
    thresholds=(
        ROWS,
        ERRORS,
        Threshold(
            name="dead",
            value=0.9,
            unit="fraction of the groups",
            meaning="with more groups without variance, hardly any prompt teaches",
            seed="",
            decision="chosen: a tenth of the batch remains; ordinary runs lose up to two thirds of their groups",
        ),
        Threshold(
            name="equal",
            value=1e-6,
            unit="standard deviation of the rewards",
            meaning="a smaller spread is none",
            seed="",
            decision="rounding",
        ),
        Threshold(
            name="near",
            value=0.1,
            unit="of the best mean reward",
            meaning="how close to its best the reward must be for the prompts to count as solved",
            seed="",
            decision="a solved task stays at its best reward",
        ),
        Threshold(
            name="kept",
            value=0.5,
            unit="of the first mean reward",
            meaning="with less, the policy has lost right answers that it gave at the start",
            seed="",
            decision="chosen: half; prompts that are too hard have no reward to lose",
        ),
    ),
    outcomes=(
        Outcome(name="vary", answer=PASS, meaning="the rewards within groups differ"),
        Outcome(
            name="solved",
            answer=NOTE,
            meaning="the reward rose until all answers to a prompt get the same",
            fix="Stop here, or go on with harder prompts: these teach nothing more.",
        ),
        Outcome(
            name="all-right",
            answer=SUSPECT,
            meaning="the prompts are too easy: all answers get the same high reward",
            fix="Use harder prompts, or leave out prompts that the policy always solves.",
            experiment="Take 20 prompts and sample 16 answers each. If every answer is right, these prompts teach "
            "nothing more.",
            may_pass=True,
            explains=_FOLLOWS,
        ),
        Outcome(
            name="lost",
            answer=SUSPECT,
            meaning="the policy has lost the right answers that it gave at first, and no group has one now",
            fix="Check the sign of the advantage and of the loss. Then lower the learning rate, and start from a "
            "checkpoint before the fall.",
            experiment="Reverse the sign of the advantage and train 100 steps from the start. If the reward rises, the "
            "sign was wrong; if it falls again, the learning rate is too high.",
            may_pass=True,
            explains=_FOLLOWS,
        ),
        Outcome(
            name="all-wrong",
            answer=SUSPECT,
            meaning="the prompts are too hard, or the reward function gives every answer the same value",
            fix="Print ten answers with their rewards and mend the reward function; then use easier prompts, more "
            "answers per prompt or a higher temperature.",
            experiment="Give the reward function a right answer by hand. If its reward is the same, the function is "
            "wrong; if it is higher, the prompts are too hard.",
            may_pass=True,
            explains=_FOLLOWS,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
