"""G2.7: are the policy's updates small enough?"""

from __future__ import annotations

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, ROWS, reward_improves
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import CLIP_FRACTION, UPDATE_KL, last_level, metric
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    clipped, moved = metric(run, CLIP_FRACTION, limit["rows"]), metric(run, UPDATE_KL, limit["rows"])
    if clipped is None and moved is None:
        raise NotApplicable("neither the clip fraction nor the KL divergence of an update was logged")
    measured: dict[str, float] = {}
    said = []
    if clipped is not None:
        measured["clipped"] = last_level(clipped)
        said.append(f"{percent(measured['clipped'])} of the ratios are clipped (limit {percent(limit['clipped'])})")
    if moved is not None:
        measured["kl"] = last_level(moved)
        said.append(f"an update moves the policy by {shown(measured['kl'])} nats (limit {shown(limit['kl'])})")
    message = f"{'; '.join(said)}."
    message = message[0].upper() + message[1:]
    if measured.get("clipped", 0.0) <= limit["clipped"] and measured.get("kl", 0.0) <= limit["kl"]:
        return Finding("small", message, measured)
    return Finding("large" if reward_improves(run, limit) else "too-large", message, measured)


QUESTION = Question(
    code="G2.7",
    name="policy updates are small",
    asks="Do updates stay within the range in which PPO's estimate of the gain holds?",
    why="PPO's loss is valid near the policy that sampled the answers. If most ratios leave the clip range, the update "
    "is too large and the estimate is wrong.",
    needs=("clip_fraction",),
    panel=1,
    thresholds=(
        ROWS,
        ERRORS,
        Threshold(
            name="clipped",
            value=0.5,
            unit="fraction of the ratios",
            meaning="with more clipped ratios, an update is too large",
            seed="",
            decision="chosen: PPO's usual values are 0.05 to 0.3",
        ),
        Threshold(
            name="kl",
            value=0.2,
            unit="nats",
            meaning="an update that moves the policy further is too large",
            seed="",
            decision="chosen: ten times the usual target of 0.02",
        ),
    ),
    outcomes=(
        Outcome(name="small", answer=PASS, meaning="the policy's updates are small"),
        Outcome(
            name="large",
            answer=NOTE,
            meaning="the policy's updates are large, and the reward improves",
            fix="Keep a checkpoint of the best reward; lower the learning rate if the reward falls.",
        ),
        Outcome(
            name="too-large",
            answer=SUSPECT,
            meaning="the policy's updates are too large",
            fix="Lower the learning rate by three, use fewer epochs per batch of answers, or stop a batch at "
            "target_kl=0.02.",
            experiment="Train with a third of the learning rate. If the reward rises, the updates were too large.",
            may_pass=True,
            explains=("V1.8", "G2.2"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
