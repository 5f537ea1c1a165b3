"""P3.2: is the loss given logits?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, PASS, Finding, Limits, NotApplicable, Outcome, Question

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    graph = bench.first_pass().graph
    if graph.squashed:
        return Finding(
            "squashed-twice",
            f"the graph of the loss shows a {graph.squashed} right before a loss that applies one itself.",
        )
    if graph.probabilities:
        return Finding("not-logarithms", "a loss over log-probabilities is given the output of a softmax.")
    if not graph.labels and "BinaryCrossEntropy" not in graph.comparison:
        raise NotApplicable("the loss is no cross-entropy")
    return Finding("pass", "the scores reach the loss without a softmax or sigmoid before it.")


QUESTION = Question(
    code="P3.2",
    name="logits, not probabilities",
    asks="Do scores go through a softmax or a sigmoid before a loss that applies one itself?",
    why="A cross-entropy over probabilities cannot fall below ln(e + C - 1) - 1 and its gradients are tiny: training "
    "looks like a hard task.",
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(),
    outcomes=(
        Outcome("pass", PASS, "the loss is given logits"),
        Outcome(
            "squashed-twice",
            FAULT,
            "the loss squashes scores that are squashed already",
            "Return the raw scores (logits) from the model; squash them only where probabilities are read.",
            explains=("C1", "C3", "C4", "S"),
        ),
        Outcome(
            "not-logarithms",
            FAULT,
            "the loss expects logarithms of probabilities",
            "Use log_softmax before nll_loss, or cross_entropy on the raw scores.",
            explains=("C1", "C3", "C4", "D4", "S"),
        ),
    ),
    find=find,
)
