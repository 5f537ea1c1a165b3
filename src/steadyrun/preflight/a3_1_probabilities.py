"""A3.1, before training: do the model's outputs fit its loss?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.same_cause import probe_of
from steadyrun.questions.audits import a3_1_probabilities as audit
from steadyrun.questions.form import Finding, Limits

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, _limit: Limits) -> Finding:
    graph = bench.first_pass().graph
    chooses = bool(graph.labels) or "BinaryCrossEntropy" in graph.comparison
    return audit.judged(graph.squashed, graph.probabilities, graph.wrong_axis or (), chooses=chooses)


QUESTION = probe_of(
    audit.QUESTION,
    asks=audit.QUESTION.asks,
    needs=("loss_fn", "batches"),
    outcomes=audit.QUESTION.outcomes,
    find=find,
)
