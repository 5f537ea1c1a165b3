"""A3.1: is the loss given logits?"""

from __future__ import annotations

from dataclasses import replace

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, Outcome, Question
from steadyrun.signals.intent import count, objective
from steadyrun.signals.missing import NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, _limit: Limits) -> Finding:
    facts = objective(run)
    finding = judged(str(facts.get("squashed", "")), facts.get("probabilities") is True, chooses="classes" in facts)
    samples = f" Seen in {count(facts, 'samples') or 1} sampled steps." if finding.outcome != "pass" else ""
    return replace(finding, message=f"{finding.message}{samples}")


def judged(squashed: str, probabilities: bool, *, chooses: bool) -> Finding:
    """What the graph of a loss says; preflight asks the same of a first batch."""
    if squashed:
        message = f"the graph of the loss shows a {squashed} right before a loss that applies one itself."
        return Finding("squashed-twice", message)
    if probabilities:
        return Finding("not-logarithms", "a loss over log-probabilities is given the output of a softmax.")
    if not chooses:
        raise NotApplicable("the loss is no cross-entropy")
    return Finding("pass", "the scores reach the loss without a softmax or sigmoid before it.")


_OUTCOMES = (
    Outcome(name="pass", answer=PASS, meaning="the loss is given logits"),
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
        fix="Use log_softmax before nll_loss, or cross_entropy on the raw scores.",
        explains=("C1", "C3", "C4", "D4", "S"),
    ),
)
_WHY = (
    "A cross-entropy over probabilities cannot fall below ln(e + C - 1) - 1 and its gradients are tiny: training looks "
    "like a hard task."
)

QUESTION = Question(
    code="A3.1",
    name="logits, not probabilities",
    asks="Do scores go through a softmax or a sigmoid before a loss that applies one itself?",
    why=_WHY,
    needs=("objective",),
    panel=1,
    thresholds=(),
    outcomes=_OUTCOMES,
    find=find,
    always=True,
)
