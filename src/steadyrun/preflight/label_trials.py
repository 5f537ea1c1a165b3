"""The batches whose labels are worth a pass: the first ones, and those whose labels look wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.preflight.batch_arrays import ArraySource, integers, source_of
from steadyrun.signals.missing import NotApplicable

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench
    from steadyrun.preflight.guarded_pass import GuardedPass, Targets

_TRIED = 3  # batches that look bad and are tried
Sources = list[tuple["Targets", ArraySource]]


def first_trials(bench: Bench) -> list[tuple[int, GuardedPass]]:
    """The first batches up to one that can be run, by index."""
    return list(enumerate(bench.guarded_passes()))


def more_trials(bench: Bench, sources: Sources) -> list[tuple[int, GuardedPass]]:
    """Batches with labels outside of the classes, or with none that counts; each is run once for all probes."""
    return [(index, bench.guarded_pass(index)) for index in _suspicious(bench, sources)[:_TRIED]]


def label_sources(bench: Bench, trials: list[tuple[int, GuardedPass]]) -> Sources:
    """The class targets of the loss, with the array of the batch that each is taken from."""
    if not trials or not trials[-1][1].targets:
        raise NotApplicable("no class targets are seen to go into a cross-entropy")
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
