"""C6.1, before training: does weight decay apply only to the intended parameters?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steadyrun.preflight.same_cause import probe_of
from steadyrun.questions.configuration import c6_1_decay_groups
from steadyrun.questions.form import Finding, Limits
from steadyrun.signals.missing import MissingSignal

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


@dataclass(frozen=True)
class _Described:
    """Live objects in the form of a run's manifest."""

    config: Mapping[str, Any]
    parts: Mapping[str, list[dict[str, Any]]]

    def listed(self, key: str) -> list[dict[str, Any]]:
        return self.parts.get(key, [])


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.probes.description import describe_groups, named_parameters

    if not bench.optimized:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    weights = [{"name": name, "shape": list(parameter.shape)} for name, parameter in named_parameters(bench.model)]
    groups = describe_groups(bench.task.optimizers, bench.model)
    described: Any = _Described(bench.config, {"param_groups": groups, "initial_weights": weights})
    return c6_1_decay_groups.find(described, limit)


QUESTION = probe_of(
    c6_1_decay_groups.QUESTION,
    asks=c6_1_decay_groups.QUESTION.asks,
    needs=("optimizer", "no_decay"),
    outcomes=c6_1_decay_groups.QUESTION.outcomes,
    find=find,
)
