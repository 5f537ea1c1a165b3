"""P3.2: is the loss given logits?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.audits import a3_1_probabilities as audit
from steadyrun.questions.form import Finding, Limits, Question

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    graph = bench.first_pass().graph
    chooses = bool(graph.labels) or "BinaryCrossEntropy" in graph.comparison
    return audit.judged(graph.squashed, graph.probabilities, chooses=chooses)


QUESTION = Question(
    code="P3.2",
    name=audit.QUESTION.name,
    asks=audit.QUESTION.asks,
    why=audit.QUESTION.why,
    needs=("loss_fn", "batches"),
    panel=None,
    thresholds=(),
    outcomes=audit.QUESTION.outcomes,
    find=find,
)
