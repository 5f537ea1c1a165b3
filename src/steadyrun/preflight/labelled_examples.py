"""The examples of the batches: their classes, and hashes of their contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from steadyrun.preflight.batch_arrays import ArraySource, Integers, as_numpy, integers, named, source_of
from steadyrun.probes.batch_hashes import arrays_of, example_hashes
from steadyrun.signals.missing import MissingSignal

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench

Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Classes:
    """The array of the batches with one class per example."""

    source: ArraySource
    count: int
    ignored: int

    def of(self, batch: Any) -> Integers | None:
        """The classes of a batch's examples."""
        labels = self.source.of(integers(batch))
        return None if labels is None else labels.reshape(-1)

    def inputs(self, batch: Any) -> Hashes | None:
        """A hash of each example without its class."""
        labels = self.of(batch)
        arrays = [as_numpy(tensor) for name, tensor in named(batch).items() if name != self.source.name]
        rows = [
            array
            for array in arrays
            if array is not None and array.ndim and labels is not None and len(array) == len(labels)
        ]
        digests = example_hashes(rows) if rows else None
        return None if digests is None else np.asarray(digests)


def classes_of(bench: Bench) -> Classes | None:
    """The array with one class per example; None if the batches have none."""
    if "classes" not in bench.memo:
        bench.memo["classes"] = _find_classes(bench)
    classes: Classes | None = bench.memo["classes"]
    return classes


def _find_classes(bench: Bench) -> Classes | None:
    passes = bench.guarded_passes()
    if not passes or passes[-1].problem is not None:
        return None
    arrays = integers(bench.batches[len(passes) - 1])
    flat = {name: array for name, array in arrays.items() if array.ndim == 1 or array.shape[1:] == (1,)}
    for targets in passes[-1].targets:
        source = source_of(targets.values, flat) if targets.values.ndim == 1 and targets.values.size > 1 else None
        if source is not None:
            return Classes(source, targets.classes, targets.ignore_index)
    return None


def hashes(batches: list[Any], pad_id: int | None) -> list[Hashes]:
    """One hash per example of each batch; batches without arrays are left out."""
    digests = [example_hashes(arrays_of(batch), pad_id) for batch in batches]
    return [
        np.asarray(digest if isinstance(digest, np.ndarray) else digest.cpu().numpy())
        for digest in digests
        if digest is not None
    ]


def again(loader: Any, most: int) -> list[Any]:
    """The batches of a later pass over a loader, with random numbers not drawn before."""
    from steadyrun.preflight.batch_draw import first_of
    from steadyrun.program.random_state import move_on

    if isinstance(loader, list | tuple):
        raise MissingSignal("loader", "the batches are a list, the same in every pass", "give preflight the loader")
    if hasattr(loader, "__next__"):
        raise MissingSignal("loader", "the loader can be read only once", "give preflight a loader, not its iterator")
    move_on(loader)
    try:
        return first_of(loader, most)
    except Exception as problem:
        why = f"a second pass over the loader raised {type(problem).__name__}: {problem}"
        raise MissingSignal("loader", why, "let the loader be read again for every epoch") from problem
