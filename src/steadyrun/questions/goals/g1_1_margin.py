"""G1.1: do chosen answers gain on rejected ones?"""

from __future__ import annotations

import math

import numpy as np

from steadyrun.questions.form import PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.questions.goals.common import ERRORS, MANY, ROWS
from steadyrun.questions.vital_signs.improvement import course
from steadyrun.signals.curves import neighbour_noise
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.policy_metrics import (
    CHOSEN_LOGP,
    MARGIN,
    PREFERENCE_ACCURACY,
    REJECTED_LOGP,
    declared_as,
    last_level,
    metric,
    preferences,
)
from steadyrun.signals.progress import Levels, levels
from steadyrun.signals.run_signals import Points, Signals
from steadyrun.text import percent, shown

_FIFTH = 5  # a level is a median of this part of the rows
_HALF = 0.5  # the accuracy of a guess between two answers
_SCALED = ("simpo", "simpo_gamma", "gamma_beta_ratio")  # losses over mean log-probabilities take a beta of 2 and more


def find(run: Signals, limit: Limits) -> Finding:
    margin = metric(run, MARGIN, limit["rows"]) if preferences(run) else None
    if margin is None:
        raise NotApplicable("no margin between chosen and rejected answers was logged")
    level = levels(run, margin.name, limit["rows"], rises=True)
    surely = limit["errors"] * level.error
    words = course("The margin between chosen and rejected answers", level.start, level.best, level.end)
    accuracy = _accuracy(run, limit)
    right = None if accuracy is None else last_level(accuracy)
    measured = {"start": level.start, "end": level.end} | ({} if right is None else {"accuracy": right})
    prefers = "" if right is None else f"; the chosen answer wins in {percent(right)} of the pairs"
    if float(np.max(np.abs(run.points(margin.name).values))) <= limit["same"]:
        if _answers_differ(run, limit):
            message = (
                f"The margin is 0 in all {len(margin)} rows, although the log-probabilities of chosen and rejected "
            )
            return Finding("flat", f"{message}answers differ: the policy equals its reference.", measured)
        return Finding("identical", f"The margin is 0 in all {len(margin)} rows{prefers}.", measured)
    if (away := _parts_wrongly(run, limit) or _against_logps(run, level, limit)) is not None:
        return away
    if level.end < min(0.0, level.start) - surely and (right is None or right < _HALF):
        return Finding("reversed", f"{words}{prefers}.", measured)
    if level.best - level.start <= surely and _long_enough(run, level, limit) and not run.running:
        return Finding("flat", f"{words}, within its noise{prefers}.", measured)
    if level.end - level.start > surely and (opposed := _opposed(run, level, limit)) is not None:
        return opposed
    return _unusual_beta(run, limit) or Finding("rises", f"{words}{prefers}.", measured)


def _answers_differ(run: Signals, limit: Limits) -> bool:
    """Whether chosen and rejected answers have different log-probabilities."""
    chosen, rejected = metric(run, CHOSEN_LOGP, limit["rows"]), metric(run, REJECTED_LOGP, limit["rows"])
    if chosen is None or rejected is None or not np.array_equal(chosen.steps, rejected.steps):
        return False
    return bool(np.any(np.abs(chosen.values - rejected.values) > limit["same"] * np.abs(chosen.values)))


def _accuracy(run: Signals, limit: Limits) -> Points | None:
    """How often the chosen answer wins; TRL's reward trainer logs it as `accuracy`."""
    found = metric(run, PREFERENCE_ACCURACY, limit["rows"])
    plain = run.maybe("accuracy") if found is None else None
    return plain if plain is not None and len(plain) >= limit["rows"] else found


def _long_enough(run: Signals, level: Levels, limit: Limits) -> bool:
    """Whether the run shows an effect if there is one; a trainer may log a row every few steps."""
    loss = run.maybe("loss")
    return max(level.points, 0 if loss is None else len(loss)) >= limit["many"]


def _parts_wrongly(run: Signals, limit: Limits) -> Finding | None:
    """Rejected answers become likelier and chosen ones less likely, whatever the logged rewards say."""
    chosen, rejected = metric(run, CHOSEN_LOGP, limit["rows"]), metric(run, REJECTED_LOGP, limit["rows"])
    if chosen is None or rejected is None:
        return None
    good, bad = levels(run, chosen.name, limit["rows"], rises=True), levels(run, rejected.name, limit["rows"])
    falls = good.start - good.end > limit["errors"] * good.error
    if not falls or bad.end - bad.start <= limit["errors"] * bad.error:
        return None
    words = f"The log-probability of chosen answers fell from {shown(good.start)} to {shown(good.end)}, that of "
    words += f"rejected ones rose from {shown(bad.start)} to {shown(bad.end)}."
    return Finding("reversed", words, {"chosen": good.end, "rejected": bad.end})


def _against_logps(run: Signals, level: Levels, limit: Limits) -> Finding | None:
    """The margin of rewards grows, but chosen answers lose to rejected ones in log-probability by more than that."""
    chosen, rejected = metric(run, CHOSEN_LOGP, limit["rows"]), metric(run, REJECTED_LOGP, limit["rows"])
    if chosen is None or rejected is None:
        return None
    steps = np.intersect1d(chosen.steps, rejected.steps)
    gap = chosen.values[np.isin(chosen.steps, steps)] - rejected.values[np.isin(rejected.steps, steps)]
    if len(gap) < limit["rows"]:
        return None
    size = max(1, len(gap) // _FIFTH)
    before, after = float(np.median(gap[:size])), float(np.median(gap[-size:]))
    lost, error = before - after, neighbour_noise(gap) / math.sqrt(size)
    if level.end <= level.start or lost <= max(limit["errors"] * error, level.end - level.start):
        return None
    words = f"The log-probability of chosen answers minus that of rejected ones fell from {shown(before)} to "
    words += f"{shown(after)}, while the logged margin rose from {shown(level.start)} to {shown(level.end)}."
    return Finding("reversed", words, {"before": before, "after": after, "end": level.end})


def _opposed(run: Signals, level: Levels, limit: Limits) -> Finding | None:
    """The margin of held-out pairs becomes negative while that of training pairs grows."""
    held_out = metric(run, MARGIN, 1, held_out=True)
    last = None if held_out is None else float(held_out.values[-1])
    if last is None or last >= -limit["opposed"] * level.end or level.end <= 0:
        return None
    words = f"The margin of training pairs rose to {shown(level.end)}, that of held-out pairs is {shown(last)}."
    return Finding("opposed", words, {"end": level.end, "held_out": last})


def _unusual_beta(run: Signals, limit: Limits) -> Finding | None:
    """A declared beta that no published recipe is near."""
    beta = declared_as(run, "beta", "dpo_beta")
    if beta is None or any(str(run.config.get(name, "")) for name in _SCALED) or "simpo" in _kind_of_loss(run):
        return None
    bounds = f"usual: {limit['beta_low']:g} to {limit['beta_high']:g}"
    if beta > limit["beta_high"]:
        return Finding("beta-high", f"The declared beta is {shown(beta)} ({bounds}).", {"beta": beta})
    if 0 < beta < limit["beta_low"]:
        return Finding("beta-low", f"The declared beta is {shown(beta)} ({bounds}).", {"beta": beta})
    return None


def _kind_of_loss(run: Signals) -> str:
    return str(run.config.get("loss_type", "")).lower()


QUESTION = Question(
    code="G1.1",
    name="chosen answers gain",
    asks="Does the margin between chosen and rejected answers grow?",
    why="Preference tuning must raise the chosen answer above the rejected one. A margin that stays at zero means that "
    "the policy does not move; a margin that falls means that the pair is the wrong way round.",
    needs=("rewards/margins",),
    panel=1,
    thresholds=(
        ROWS,
        MANY,
        ERRORS,
        Threshold(
            name="same",
            value=1e-6,
            unit="of the margin",
            meaning="smaller margins are rounding: both answers of a pair have the same log-probability",
            seed="",
            decision="two different answers part with the first update",
        ),
        Threshold(
            name="opposed",
            value=0.5,
            unit="of the margin of training pairs",
            meaning="held-out pairs with a margin below minus this part the other way",
            seed="",
            decision="chosen: pairs that are merely learned by heart have a margin near zero on held-out data",
        ),
        Threshold(
            name="beta_high",
            value=2,
            unit="beta",
            meaning="a larger beta saturates the loss: the policy hardly leaves its reference",
            seed="",
            decision="chosen: DPO, IPO, KTO and ORPO are trained with 0.01 to 1; SimPO's beta is another number",
        ),
        Threshold(
            name="beta_low",
            value=0.001,
            unit="beta",
            meaning="a smaller beta lets the policy run far from its reference before the loss notices",
            seed="",
            decision="chosen: a tenth of the smallest usual value",
        ),
    ),
    outcomes=(
        Outcome(name="rises", answer=PASS, meaning="the margin grows"),
        Outcome(
            name="reversed",
            answer=SUSPECT,
            meaning="the policy learns to prefer the rejected answers",
            fix="Swap the columns chosen and rejected, or the sign of beta.",
            experiment="Print three pairs with their labels. If the better answer is in the column rejected, the "
            "columns are swapped.",
            may_pass=True,
            explains=("V1", "C4", "S", "G1.2"),
        ),
        Outcome(
            name="opposed",
            answer=SUSPECT,
            meaning="training pairs and held-out pairs are labelled the opposite way",
            fix="Swap the columns chosen and rejected in one of the two datasets.",
            experiment="Print three pairs of each dataset with their labels. In one of them the better answer is in "
            "the column rejected.",
            may_pass=True,
            explains=("V1", "C4.2", "S", "G1.2"),
        ),
        Outcome(
            name="beta-high",
            answer=SUSPECT,
            meaning="beta is far above the usual range",
            fix="Set beta to 0.1.",
            experiment="Train 100 steps with beta=0.1 and compare the held-out accuracy of the pairs. If it is higher, "
            "beta was too large.",
            explains=("V1", "C4", "S", "G1.2", "D2"),
        ),
        Outcome(
            name="beta-low",
            answer=SUSPECT,
            meaning="beta is far below the usual range",
            fix="Set beta to 0.1.",
            experiment="Train 100 steps with beta=0.1 and compare ten answers of both policies. If those of the small "
            "beta are broken, it was too small.",
            explains=("V1", "C4", "S", "G1.2", "D2"),
        ),
        Outcome(
            name="identical",
            answer=SUSPECT,
            meaning="chosen and rejected answers are the same to the loss",
            fix="Check that the two columns have different texts, that truncation leaves their difference, and that "
            "the mask keeps the answers and not the prompts.",
            experiment="Print the learned tokens of both answers of one pair. If they are equal, nothing can be "
            "learned from it.",
            explains=("V1", "C4", "S", "A5.9"),
        ),
        Outcome(
            name="flat",
            answer=SUSPECT,
            meaning="the policy does not learn the preferences",
            fix="Read ten pairs: in some of them chosen and rejected may be swapped. Check that the weights are in the "
            "optimizer and that the reference is a separate, frozen copy. Then try ten times the learning rate.",
            experiment="Train 50 steps on eight pairs. If the margin stays at zero, the policy does not move; if it "
            "grows, the labels of the pairs contradict each other.",
            may_pass=True,
            explains=("V1", "C4"),
        ),
    ),
    find=find,
    always=True,
    special=True,
)
