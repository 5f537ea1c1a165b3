"""A3.1: do the outputs suit the loss?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyrun.questions.facts import known_facts
from steadyrun.questions.form import FAULT, PASS, SUSPECT, Finding, Limits, Outcome, Question, Threshold
from steadyrun.signals.facts import ADVERSARIAL, POLICY
from steadyrun.signals.intent import count, objective
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.optimizer_settings import maximizes
from steadyrun.signals.run_signals import Signals
from steadyrun.text import counted, percent, shown


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
    samples = f" Seen in {counted(count(facts, 'samples') or 1, 'sampled step')}." if finding.outcome != "pass" else ""
    return replace(finding, message=f"{finding.message}{samples}")


def judged(squashed: str, probabilities: bool, wrong_axis: tuple[int, ...], *, chooses: bool) -> Finding:
    """The finding from the graph of a loss; preflight applies it to a first batch."""
    if squashed:
        message = f"The graph of the loss has a {squashed} right before a loss that applies it itself."
        return Finding("squashed-twice", message)
    if wrong_axis:
        sizes = " x ".join(str(size) for size in wrong_axis)
        message = f"After the softmax over scores of shape {sizes}, the probabilities of an item do not sum to 1."
        return Finding("wrong-axis", message)
    if probabilities:
        return Finding("not-logarithms", "A loss over log-probabilities gets the output of a softmax.")
    if not chooses:
        raise NotApplicable("the loss compares no outputs with targets")
    return Finding("pass", "The loss gets outputs of the kind it expects.")


def _rewarded(run: Signals, limit: Limits) -> Finding | None:
    """A comparison with targets that has a negative weight in a loss of neither a game nor a policy."""
    if known_facts(run, limit).objective in (ADVERSARIAL, POLICY) or maximizes(run):
        return None
    for name in run.matching("fit_weight/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        weight = float(np.max(points.values))
        if weight < 0:
            kind = name.partition("/")[2].partition("#")[0]
            message = f"A loss term ({kind}) has weight {shown(weight)}: the loss falls as its predictions get worse."
            return Finding("rewards-errors", message, {"weight": weight})
    return _partly_rewarded(run, limit)


def _partly_rewarded(run: Signals, limit: Limits) -> Finding | None:
    """A comparison with targets in which some examples count with the wrong sign."""
    for name in run.matching("fit_against/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"] or "classes" in name:  # of actions, advantages have signs
            continue
        share = float(np.min(points.values))
        if share > limit["against"]:
            kind = name.partition("/")[2].partition("#")[0]
            message = f"In a loss term ({kind}), {percent(share)} of the weight or more is negative (limit "
            message += f"{percent(limit['against'])}): the loss falls as these predictions get worse."
            return Finding("rewards-errors", message, {"share": share})
    return None


def _out_of_reach(run: Signals, limit: Limits) -> Finding | None:
    for name in run.matching("fit_out_of_reach/*"):
        points = run.maybe(name)
        if points is None or len(points) < limit["samples"]:
            continue
        share = float(np.median(points.values))
        if share > limit["reach"]:
            message = (
                "Targets lie outside the range of the outputs. This costs "
                f"{percent(min(share, 1.0))} of the error of the best constant (limit {percent(limit['reach'])})."
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
            message = (
                f"With pos_weight, positive targets weigh {shown(odds)} times as much as negative targets in total."
            )
            return Finding("one-sided", message, {"odds": odds})
    return None


_CONSEQUENCES = ("C1", "C3", "C4", "C7.2", "D4", "S", "V1.2")
_MISTAKEN_FOR = (
    "C4.1:not-learning",
    "C4.1:diverging",
    "C4.2:overfitting",
    "P6.1:does-not-fall",
    "P6.5:too-high",
)  # of a wrong sign
_OUTCOMES = (
    Outcome(name="pass", answer=PASS, meaning="the loss gets outputs of the kind it expects"),
    Outcome(
        name="squashed-twice",
        answer=FAULT,
        meaning="softmax or sigmoid is applied twice",
        fix="Return raw scores (logits) from the model, and apply softmax or sigmoid only to read probabilities.",
        explains=("C1", "C3", "C4", "D4", "S"),
    ),
    Outcome(
        name="not-logarithms",
        answer=FAULT,
        meaning="the loss expects log-probabilities but gets probabilities",
        fix="Use log_softmax before nll_loss or kl_div, or cross_entropy on the raw scores.",
        explains=("C1", "C3", "C4", "D4", "S"),
    ),
    Outcome(
        name="wrong-axis",
        answer=FAULT,
        meaning="the softmax runs over the wrong axis",
        fix="Give the softmax the class axis: log_softmax(scores, dim=1) for (batch, classes), dim=-1 if classes come "
        "last.",
        explains=(*_CONSEQUENCES, "A3.9", "P3.7", "P6"),
    ),
    Outcome(
        name="out-of-reach",
        answer=FAULT,
        meaning="the last activation cannot reach the targets",
        fix="Remove the last activation (ReLU, sigmoid, tanh, softmax), or scale its range to that of the targets.",
        explains=_CONSEQUENCES,
    ),
    Outcome(
        name="one-sided",
        answer=SUSPECT,
        meaning="pos_weight is so large that the model learns to always answer yes",
        fix="Set pos_weight to the number of negative targets divided by the number of positive targets, or leave it "
        "out.",
        experiment="Train 200 steps without pos_weight. If predictions become better than a guess, it was too large.",
        explains=_CONSEQUENCES,
    ),
    Outcome(
        name="rewards-errors",
        answer=SUSPECT,
        meaning="a term of the loss has the wrong sign",
        fix="Add this term to the loss instead of subtracting it.",
        experiment="Reverse the sign of this term and train 200 steps. If its error is lower than in this run at step "
        "200, the sign was wrong.",
        explains=(*_CONSEQUENCES, "G3", "V1", *_MISTAKEN_FOR),
    ),
)
_WHY = (
    "A cross-entropy over probabilities cannot fall below ln(e + C - 1) - 1, and its gradients are tiny: the task "
    "looks hard. The same holds for a softmax over the batch, for outputs that cannot reach the targets, and for a "
    "term with the wrong sign."
)

QUESTION = Question(
    code="A3.1",
    name="outputs suit the loss",
    asks="Does the loss get scores of the kind, axis and range it expects, and does it penalise errors?",
    why=_WHY,
    needs=("objective",),
    panel=1,
    thresholds=(
        Threshold(
            name="reach",
            value=0.2,
            unit="of the error of the best constant",
            meaning="how much of it may come from targets outside the range of the outputs",
            seed="",
            decision="0 if the range contains the targets; measured: 0.41 to above 1 for a tanh, a ReLU or a softmax "
            "that cannot reach its targets; a few clipped targets stay below",
            of="share",
        ),
        Threshold(
            name="odds",
            value=20,
            unit="times",
            meaning="how much more all positive targets together may weigh than the negative targets",
            seed="",
            decision="a weight that balances rare positives gives 1; above 20 the best answer to almost every input "
            "is yes",
            of="odds",
        ),
        Threshold(
            name="against",
            value=0.02,
            unit="of the weight",
            meaning="if more of a term's weight is negative in every sample, some examples count with the wrong sign",
            seed="",
            decision="0 unless a weight is negative; advantages have both signs, and policies are not asked",
        ),
        Threshold(
            name="samples",
            value=2,
            unit="sampled steps",
            meaning="how often outputs and targets must have been compared",
            seed="",
            decision="the first batch alone may differ",
        ),
    ),
    outcomes=_OUTCOMES,
    find=find,
    always=True,
)
