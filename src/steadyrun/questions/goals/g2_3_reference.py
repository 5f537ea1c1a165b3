"""G2.3: does the policy stay near its reference?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS, of_a_policy, reward_improves
from steadyrun.signals.curves import neighbour_noise
from steadyrun.signals.policy_metrics import REFERENCE_KL, last_level
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown


def find(run: Signals, limit: Limits) -> Finding:
    points = of_a_policy(run, REFERENCE_KL, limit)
    last, before = last_level(points), float(np.median(points.values[: len(points) // 2]))
    measured = {"before": before, "end": last}
    words = f"The KL divergence to the reference is {shown(last)} at the end; its median in the first half is"
    if last < -limit["negative"] and last < -limit["errors"] * neighbour_noise(points.values):
        return Finding("negative", f"{words} {shown(before)}.", measured)
    far = before > 0 and last > limit["runaway"] * before and len(points) >= limit["many"]
    if not far:
        return Finding("near", f"{words} {shown(before)}.", measured)
    message = f"{words} {shown(before)} (limit {limit['runaway']:g} times)."
    return Finding("far" if reward_improves(run, limit) else "runaway", message, measured)


QUESTION = Question(
    code="G2.3",
    name="policy stays near its reference",
    asks="Does the KL divergence to the reference policy stay bounded?",
    why="A policy that leaves its reference without a gain in reward forgets what it knew. A negative divergence means "
    "that answers were not sampled from the policy.",
    needs=("kl",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        ERRORS,
        Threshold(
            name="runaway",
            value=10,
            unit="times the median of the first half",
            meaning="a divergence beyond this runs away",
            seed="",
            decision="chosen: a divergence that grows steadily ends at three times that median",
        ),
        Threshold(
            name="negative",
            value=0.1,
            unit="nats",
            meaning="a mean below minus this is negative",
            seed="",
            decision="estimates from samples scatter around zero at the start",
        ),
    ),
    outcomes=(
        Outcome(name="near", answer=PASS, meaning="the policy stays near its reference"),
        Outcome(
            name="far",
            answer=NOTE,
            meaning="the policy leaves its reference quickly while the reward improves",
            fix="Read twenty answers: a policy that exploits the reward function looks like this.",
        ),
        Outcome(
            name="runaway",
            answer=SUSPECT,
            meaning="the policy runs away from its reference without a gain in reward",
            fix="Lower the learning rate or raise the KL coefficient (beta), and start from a checkpoint before the "
            "rise.",
            experiment="Continue from that checkpoint with a third of the learning rate. If the divergence stays "
            "bounded, the updates were too large.",
            may_pass=True,
            explains=("V1.8", "G2.2"),
        ),
        Outcome(
            name="negative",
            answer=SUSPECT,
            meaning="the divergence is negative, so the answers were not sampled from the policy that is trained",
            fix="Sample with top_k=0, top_p=1 and the temperature of the loss, without a forced minimum length, and "
            "mask tokens after the end.",
            experiment="Compare the log-probabilities of one batch from the sampler and from the trainer. If they "
            "differ, sampling and training disagree.",
            may_pass=True,
        ),
    ),
    find=find,
    always=True,
    special=True,
)
