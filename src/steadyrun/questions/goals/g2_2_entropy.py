"""G2.2: does the policy still explore?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, ROWS, of_a_policy, reward_improves, reward_worsens
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import ENTROPY, declared_as, first_level, last_level
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    points = of_a_policy(run, ENTROPY, limit)
    if (unusual := _unusual_weight(run, limit) or _unusual_temperature(run, limit)) is not None:
        return unusual
    if np.any(points.values > 0) and np.any(points.values < 0):
        raise NotApplicable("the entropy of continuous actions has no zero point")
    sign = -1.0 if np.any(points.values < 0) else 1.0  # some libraries log its negative as a loss
    first, last = sign * first_level(points), sign * last_level(points)
    measured = {"start": first, "end": last}
    words = f"The policy's entropy went from {shown(first)} to {shown(last)}"
    if last < limit["gone"] * first:
        if reward_improves(run, limit):
            return Finding("low", f"{words} while the reward improved.", measured)
        return Finding("gone", f"{words} (limit {shown(limit['gone'] * first)}).", measured)
    if last > limit["runaway"] * first and reward_worsens(run, limit):
        return Finding("runaway", f"{words} and the reward fell.", measured)
    return Finding("alive", f"{words}.", measured)


def _unusual_weight(run: Signals, limit: Limits) -> Finding | None:
    """A declared weight of the entropy that outweighs the reward, or lowers the entropy on purpose."""
    weight = declared_as(run, "ent_coef", "entropy_coef", "entropy_coeff", "entropy_weight", "entropy")
    if weight is None or 0 <= weight <= limit["heavy"]:
        return None
    message = f"The declared weight of the entropy is {shown(weight)} (usual: 0 to 0.05, limit {limit['heavy']:g})."
    return Finding("weight", message, {"weight": weight})


def _unusual_temperature(run: Signals, limit: Limits) -> Finding | None:
    """A declared temperature of sampling at which answers are noise, or equal."""
    given = declared_as(run, "temperature", "sampling_temperature")
    if given is None or given == 0 or limit["cold"] <= given <= limit["hot"]:
        return None
    message = f"The declared sampling temperature is {shown(given)} (usual: 0.6 to 1.2, limits {limit['cold']:g} and "
    return Finding("temperature", f"{message}{limit['hot']:g}).", {"temperature": given})


QUESTION = Question(
    code="G2.2",
    name="policy explores",
    asks="Does the policy keep enough entropy to find better answers?",
    why="A policy without entropy always gives the same answer: it finds nothing new, and groups of answers are equal. "
    "A policy whose entropy runs away writes noise.",
    needs=("entropy",),
    panel=1,
    thresholds=(
        ROWS,
        ERRORS,
        Threshold(
            name="gone",
            value=0.05,
            unit="of the first entropy",
            meaning="a policy with less is deterministic",
            seed="",
            decision="chosen: policies that solve their task keep about a tenth",
        ),
        Threshold(
            name="heavy",
            value=0.3,
            unit="weight of the entropy",
            meaning="with a larger weight, a policy gains more by guessing than by its reward",
            seed="",
            decision="chosen: policy gradients use 0 to 0.05; normalised advantages are about 1",
        ),
        Threshold(
            name="hot",
            value=2,
            unit="temperature",
            meaning="at a higher temperature, answers are mostly noise",
            seed="",
            decision="chosen: policies are sampled at 0.6 to 1.2",
        ),
        Threshold(
            name="cold",
            value=0.2,
            unit="temperature",
            meaning="at a lower temperature, the answers to a prompt are nearly equal",
            seed="",
            decision="chosen: a third of the lowest usual value",
        ),
        Threshold(
            name="runaway",
            value=2,
            unit="times the first entropy",
            meaning="an entropy that grows beyond this while the reward falls runs away",
            seed="",
            decision="chosen: learning lowers the entropy; a bonus may raise it by half",
        ),
    ),
    outcomes=(
        Outcome(name="alive", answer=PASS, meaning="the policy still explores"),
        Outcome(
            name="low",
            answer=NOTE,
            meaning="the policy is nearly deterministic, and its reward improved",
            fix="Stop here if the reward is as high as it can be; otherwise raise the entropy bonus.",
        ),
        Outcome(
            name="gone",
            answer=SUSPECT,
            meaning="the policy stopped exploring, and its reward does not improve",
            fix="Raise the entropy bonus or the sampling temperature, lower the learning rate, and start from an "
            "earlier checkpoint.",
            experiment="Continue from a checkpoint before the fall with a tenth of the learning rate. If the entropy "
            "stays and the reward rises, the updates were too large.",
            may_pass=True,
            explains=("G2.1", "V1.8"),
        ),
        Outcome(
            name="weight",
            answer=SUSPECT,
            meaning="the weight of the entropy is far from the usual range",
            fix="Set it to 0.01, with the sign that makes a higher entropy lower the loss: loss - 0.01 * entropy.",
            experiment="Train 100 updates with a weight of 0.01. If the reward rises further, the weight was wrong.",
            explains=("V1", "G2.1", "G2.7"),
        ),
        Outcome(
            name="temperature",
            answer=SUSPECT,
            meaning="answers are sampled at a temperature far from the usual range",
            fix="Sample at a temperature of 1, the one that log-probabilities are computed with.",
            experiment="Train 50 steps with temperature=1. If the reward rises further, the temperature was wrong.",
            explains=("V1.8", "G2.1", "G2.4"),
        ),
        Outcome(
            name="runaway",
            answer=SUSPECT,
            meaning="the policy turns into noise",
            fix="Lower the learning rate and the entropy bonus, and start from an earlier checkpoint.",
            experiment="Continue from a checkpoint before the rise with a third of the learning rate. If the entropy "
            "stays, the updates were too large.",
            may_pass=True,
            explains=("V1.8",),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
