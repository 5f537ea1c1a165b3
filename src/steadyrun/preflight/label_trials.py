"""Guarded passes over batches: the first ones, and those whose labels look wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.batch_arrays import ArraySource, integers, source_of
from steadyrun.signals.missing import NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.guarded_pass import GuardedPass, Targets

_TRIED = 3  # suspicious batches that are run
Sources = list[tuple["Targets", ArraySource]]


def first_trials(bench: Bench) -> list[tuple[int, GuardedPass]]:
    """The first batches up to one that can run, by index."""
    return list(enumerate(bench.guarded_passes()))


def more_trials(bench: Bench, sources: Sources) -> list[tuple[int, GuardedPass]]:
    """Batches with labels outside the classes or all ignored; each runs once for all probes."""
    return [(index, bench.guarded_pass(index)) for index in _suspicious(bench, sources)[:_TRIED]]


def label_sources(bench: Bench, trials: list[tuple[int, GuardedPass]]) -> Sources:
    """The class targets of the loss, each with its array in the batch."""
    if not trials or not trials[-1][1].targets:
        raise NotApplicable("the loss has no cross-entropy with class targets")
    index, last = trials[-1]
    arrays = integers(bench.batches[index])
    return [(target, source) for target in last.targets if (source := source_of(target.values, arrays)) is not None]


def _suspicious(bench: Bench, sources: Sources) -> list[int]:
    suspicious = []
    for index, batch in enumerate(bench.batches):
        arrays = integers(batch)
        for targets, source in sources:
            values = source.of(arrays)
            if values is None or not values.size:
                continue
            counted = values[values != targets.ignore_index]
            if not counted.size or counted.min() < 0 or counted.max() >= targets.classes:
                suspicious.append(index)
                break
    return suspicious
