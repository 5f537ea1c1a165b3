"""G2.3: does the policy stay near its reference?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS, of_a_policy, reward_improves
from steadyrun.signals.curves import neighbour_noise
from steadyrun.signals.policy_metrics import DEAD_GROUPS, REFERENCE_KL, declared_as, last_level, metric
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import counted, shown


def find(run: Signals, limit: Limits) -> Finding:
    points = of_a_policy(run, REFERENCE_KL, limit)
    if (found := _rewarded(run, points, limit) or _unusual_weight(run, limit)) is not None:
        return found
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


def _rewarded(run: Signals, points: Points, limit: Limits) -> Finding | None:
    """Rows in which no advantage is left: there the loss is the KL term alone, and shows its weight."""
    loss, dead = run.maybe("loss"), metric(run, DEAD_GROUPS, limit["rows"])
    if loss is None or dead is None:
        return None
    idle = dead.steps[dead.values >= 1]
    steps = np.intersect1d(np.intersect1d(loss.steps, idle), points.steps[points.values > 0])
    if len(steps) < limit["rows"]:
        return None
    weights = loss.values[np.isin(loss.steps, steps)] / points.values[np.isin(points.steps, steps)]
    weight = float(np.median(weights))
    spread = float(np.median(np.abs(weights - weight)))
    if weight >= 0 or spread > limit["steady"] * -weight:
        return None
    message = (
        f"In {counted(len(steps), 'row')} without any advantage, the loss is {shown(weight)} times the divergence."
    )
    return Finding("rewarded", message, {"weight": weight, "rows": float(len(steps))})


def _unusual_weight(run: Signals, limit: Limits) -> Finding | None:
    """A declared weight of the divergence that leaves nothing to the reward."""
    weight = declared_as(run, "kl_coef", "init_kl_coef", "kl_beta", "kl_penalty_coef", "kl_loss_coef", "beta")
    if weight is None or weight <= limit["heavy"]:
        return None
    message = f"The declared weight of the KL divergence is {shown(weight)} (usual: at most {limit['heavy']:g})."
    return Finding("heavy", message, {"weight": weight})


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
            name="heavy",
            value=1,
            unit="weight of the divergence",
            meaning="with a larger weight, a nat away from the reference costs more than most rewards",
            seed="",
            decision="chosen: usual weights are 0 to 0.2",
        ),
        Threshold(
            name="steady",
            value=0.1,
            unit="of the weight",
            meaning="how far loss / divergence may lie from its median at half of the rows to be its weight",
            seed="",
            decision="chosen: an entropy bonus adds a little; other losses do not follow the divergence",
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
            name="rewarded",
            answer=SUSPECT,
            meaning="the divergence from the reference is rewarded instead of penalised",
            fix="Add the divergence to the loss: loss = policy_loss + beta * kl. In a reward it is subtracted.",
            experiment="Train 50 steps with the KL term alone. If the divergence grows, its sign is wrong.",
            explains=("V1", "C4", "G2.2", "G2.4"),
        ),
        Outcome(
            name="heavy",
            answer=SUSPECT,
            meaning="the weight of the divergence is far above the usual range, so the policy cannot follow the reward",
            fix="Set it to 0.01 to 0.1.",
            experiment="Train 100 steps with a weight of 0.02. If the reward rises further, it was too large.",
            explains=("V1", "C4", "G2.2"),
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
