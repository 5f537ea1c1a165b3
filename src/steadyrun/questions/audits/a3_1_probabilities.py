"""A3.1: do outputs and loss suit each other?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import ADVERSARIAL
from steadyrun.signals.intent import count, objective
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.optimizer_settings import maximizes
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def find(run: Signals, limit: Limits) -> Finding:
    facts = objective(run)
    axis = facts.get("wrong_axis")
    finding = judged(
        str(facts.get("squashed", "")),
        facts.get("probabilities") is True,
        tuple(axis) if isinstance(axis, list) else (),
        chooses="classes" in facts or "compares" in facts,
    )
    if finding.outcome == "pass":
        finding = _rewarded(run, limit) or _out_of_reach(run, limit) or _one_sided(run, limit) or finding
    samples = f" Seen in {count(facts, 'samples') or 1} sampled steps." if finding.outcome != "pass" else ""
    return replace(finding, message=f"{finding.message}{samples}")


def judged(squashed: str, probabilities: bool, wrong_axis: tuple[int, ...], *, chooses: bool) -> Finding:
    """What the graph of a loss says; preflight asks the same of a first batch."""
    if squashed:
        message = f"the graph of the loss shows a {squashed} right before a loss that applies one itself."
        return Finding("squashed-twice", message)
    if wrong_axis:
        sizes = " x ".join(str(size) for size in wrong_axis)
        message = f"the scores ({sizes}) go through a softmax, and the probabilities of one item do not add up to 1."
        return Finding("wrong-axis", message)
    if probabilities:
        return Finding("not-logarithms", "a loss over log-probabilities is given the output of a softmax.")
    if not chooses:
        raise NotApplicable("the loss compares nothing with classes or other targets")
    return Finding("pass", "the outputs reach the loss as it expects them.")


def _rewarded(run: Signals, limit: Limits) -> Finding | None:
    """A comparison with targets that gets a negative gradient, in a loss that is not a contest of two models."""
    if known_facts(run, limit).objective == ADVERSARIAL or maximizes(run):
        return None
    for name in run.matching("fit_weight/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        weight = float(np.max(points.values))
        if weight < 0:
            kind = name.partition("/")[2].partition("#")[0]
            message = f"a term of the loss ({kind}) counts {shown(weight)} times: it falls as predictions get worse."
            return Finding("rewards-errors", message, {"weight": weight})
    return None


def _out_of_reach(run: Signals, limit: Limits) -> Finding | None:
    for name in run.matching("fit_out_of_reach/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        share = float(np.median(points.values))
        if share > limit["reach"]:
            message = (
                f"the outputs are bounded, and {percent(min(share, 1.0))} of the best constant's error lies beyond "
                f"their bounds (limit {percent(limit['reach'])})."
            )
            return Finding("out-of-reach", message, {"share": share})
    return None


def _one_sided(run: Signals, limit: Limits) -> Finding | None:
    for name in run.matching("fit_odds/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        odds = float(np.median(points.values))
        if odds > limit["odds"]:
            message = f"with pos_weight, all positive targets together count {shown(odds)} times the negative ones."
            return Finding("one-sided", message, {"odds": odds})
    return None


_CONSEQUENCES = ("C1", "C3", "C4", "C7.2", "D4", "S", "V1.2")
_OUTCOMES = (
    Outcome(name="pass", answer=PASS, meaning="the loss is given what it expects"),
    Outcome(
        name="squashed-twice",
        answer=FAULT,
        meaning="the loss squashes scores that are squashed already",
        fix="Return the raw scores (logits) from the model; squash them only where probabilities are read.",
        explains=("C1", "C3", "C4", "D4", "S"),
    ),
    Outcome(
        name="not-logarithms",
        answer=FAULT,
        meaning="the loss expects logarithms of probabilities",
        fix="Use log_softmax before nll_loss or kl_div, or cross_entropy on the raw scores.",
        explains=("C1", "C3", "C4", "D4", "S"),
    ),
    Outcome(
        name="wrong-axis",
        answer=FAULT,
        meaning="the softmax runs over another axis than the classes: over the batch, or over time",
        fix="Give the softmax the axis of the classes: log_softmax(scores, dim=1) for (batch, classes), dim=-1 if the "
        "classes come last.",
        explains=(*_CONSEQUENCES, "A3.9", "P3.7", "P6"),
    ),
    Outcome(
        name="out-of-reach",
        answer=FAULT,
        meaning="the outputs are bounded, and targets lie beyond their bounds",
        fix="Remove the last activation (ReLU, sigmoid, tanh, softmax), or scale its range to that of the targets.",
        explains=_CONSEQUENCES,
    ),
    Outcome(
        name="one-sided",
        answer=SUSPECT,
        meaning="the weight of positive targets outweighs the negative ones: the model learns to say yes",
        fix="Set pos_weight to the number of negative targets divided by that of positive ones, or leave it out.",
        experiment="Train 200 steps without pos_weight: if predictions get better than a guess, it was too large.",
        explains=_CONSEQUENCES,
    ),
    Outcome(
        name="rewards-errors",
        answer=SUSPECT,
        meaning="a term of the loss has the wrong sign: it rewards distance from the targets",
        fix="Add this term to the loss instead of subtracting it.",
        experiment="Turn the sign of this term and train 200 steps: if its error falls now, the sign was wrong.",
        explains=_CONSEQUENCES,
    ),
)
_WHY = (
    "A cross-entropy over probabilities cannot fall below ln(e + C - 1) - 1 and its gradients are tiny: training looks "
    "like a hard task. The same goes for a softmax over the batch, for outputs that cannot take the values of the "
    "targets, and for a term with the wrong sign."
)

QUESTION = Question(
    code="A3.1",
    name="outputs suit the loss",
    asks="Does the loss get scores of the kind, axis and range that it expects, and does it punish errors?",
    why=_WHY,
    needs=("objective",),
    panel=1,
    thresholds=(
        Threshold(
            name="reach",
            value=0.2,
            unit="of the error of the best constant",
            meaning="how much of it may lie beyond the bounds of the outputs",
            seed="",
            decision="0 if the bounds contain the targets; measured: 0.41 to above 1 for a tanh, a ReLU or a softmax "
            "before targets that it cannot reach; a few clipped targets lie below",
            of="share",
        ),
        Threshold(
            name="odds",
            value=20,
            unit="times",
            meaning="how much more all positive targets together may count than the negative ones",
            seed="",
            decision="a weight that makes up for rare positives gives 1; above 20 the best answer to almost every "
            "input is yes",
            of="odds",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps",
            meaning="how often outputs and targets were compared",
            seed="",
            decision="the first batch alone may differ",
        ),
    ),
    outcomes=_OUTCOMES,
    find=find,
    always=True,
)
