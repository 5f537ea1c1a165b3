"""G2.7: are the policy's updates small enough?"""

from __future__ import annotations

import numpy as np

from steadyrun.questions.form import NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS, reward_improves
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import CLIP_FRACTION, UPDATE_KL, adaptive_rate, last_level, metric
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.signals.success import trains_policy
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    clipped, moved = metric(run, CLIP_FRACTION, limit["rows"]), metric(run, UPDATE_KL, limit["rows"])
    if (unusual := _unusual_rate(run, limit)) is not None:
        return unusual
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
    if (found := _always_one(run, clipped, moved, limit) or _often(moved, limit)) is not None:
        return found
    if measured.get("clipped", 0.0) <= limit["clipped"] and measured.get("kl", 0.0) <= limit["kl"]:
        return Finding("small", message, measured)
    return Finding("large" if reward_improves(run, limit) else "too-large", message, measured)


def _always_one(run: Signals, clipped: Points | None, moved: Points | None, limit: Limits) -> Finding | None:
    """Ratios that are exactly 1 although several updates use the same answers: the policy is compared with itself."""
    uses = [run.declared(name) for name in _USES]
    most = max((value for value in uses if value is not None), default=1.0)
    if moved is None or most < 2 or len(moved) < limit["many"]:  # small updates are not clipped either
        return None
    rows, logged = len(moved), [points for points in (clipped, moved) if points is not None]
    if any(float(np.max(np.abs(points.values))) > limit["one"] for points in logged):
        return None
    message = f"The ratio of new to old probabilities is 1 in all {rows:,} rows, although each batch of answers is "
    message += f"declared to be used {most:g} times."
    return Finding("always-one", message, {"uses": most, "rows": float(rows)})


def _often(moved: Points | None, limit: Limits) -> Finding | None:
    """Many updates that leave the range in which the estimate holds, whatever the reward does meanwhile."""
    if moved is None or len(moved) < limit["many"]:
        return None
    share = float(np.mean(moved.values > limit["kl"]))
    if share <= limit["often"]:
        return None
    message = f"{percent(share)} of the updates move the policy by more than {limit['kl']:g} nats "
    message += f"(limit {percent(limit['often'])}), at most by {shown(float(np.max(moved.values)))}."
    return Finding("too-large", message, {"share": share, "kl": float(np.max(moved.values))})


def _unusual_rate(run: Signals, limit: Limits) -> Finding | None:
    """A learning rate of Adam that no recipe for policies is near."""
    rate = adaptive_rate(run) if trains_policy(run) else None
    if rate is None or rate <= limit["rate"]:
        return None
    message = f"The policy trains with a learning rate of {shown(rate)} (limit {shown(limit['rate'])})."
    return Finding("rate", message, {"rate": rate})


_USES = ("n_epochs", "update_epochs", "ppo_epochs", "num_ppo_epochs", "num_iterations", "epochs", "updates")

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
        MANY,
        Threshold(
            name="clipped",
            value=0.5,
            unit="fraction of the ratios",
            meaning="with more clipped ratios, an update is too large",
            seed="",
            decision="chosen: PPO's usual values are 0.05 to 0.3",
        ),
        Threshold(
            name="one",
            value=1e-12,
            unit="clip fraction, and nats",
            meaning="smaller values are rounding: the ratio is 1",
            seed="",
            decision="the divergence is exactly zero if the ratio is 1; the smallest updates leave rounding of 1e-8",
        ),
        Threshold(
            name="often",
            value=0.1,
            unit="fraction of the updates",
            meaning="if more of them move the policy too far, updates are too large even while the reward rises",
            seed="",
            decision="measured: 0 in three healthy PPO runs, 0.23 with thirty times their rate",
            of="share",
        ),
        Threshold(
            name="rate",
            value=0.03,
            unit="learning rate of Adam",
            meaning="with a higher rate, one step of Adam changes a policy of any size too much",
            seed="",
            decision="chosen: usual rates are 1e-6 (language models) to 1e-2 (small networks)",
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
            name="rate",
            answer=SUSPECT,
            meaning="the learning rate is far above the usual range for a policy",
            fix="Set it to 3e-4 for a small network, or 1e-6 for a language model.",
            experiment="Train 100 updates with a tenth of the rate. If the reward rises further, it was too high.",
            explains=("V1", "C4", "C7", "D2", "S", "G2.2", "G2.5"),
        ),
        Outcome(
            name="always-one",
            answer=SUSPECT,
            meaning="the old probabilities are those of the present policy, so nothing is ever clipped",
            fix="Store the log-probabilities when the answers are sampled, without gradients, and use them in all "
            "updates on these answers.",
            experiment="Print the largest ratio in the last update on one batch. If it is exactly 1, the old "
            "probabilities are computed anew.",
            explains=("G2.1", "G2.2", "V1.8"),
        ),
        Outcome(
            name="too-large",
            answer=SUSPECT,
            meaning="the policy's updates are too large",
            fix="Lower the learning rate by three, use fewer epochs per batch of answers, or stop a batch at "
            "target_kl=0.02.",
            experiment="Train with a third of the learning rate. If the reward rises, the updates were too large.",
            may_pass=True,
            explains=("V1", "G2.2", "S6", "C3", "D2"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
