"""The examples of the batches: their classes, what was given, hashes of both."""

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
    """Where the batches hold one class per example."""

    source: ArraySource
    count: int
    ignored: int

    def of(self, batch: Any) -> Integers | None:
        """The classes of a batch's examples."""
        found = self.source.of(integers(batch))
        return None if found is None else found.reshape(-1)

    def inputs(self, batch: Any) -> Hashes | None:
        """A hash of each example without its class."""
        mine = self.of(batch)
        arrays = [as_numpy(held) for name, held in named(batch).items() if name != self.source.name]
        rows = [
            held for held in arrays if held is not None and held.ndim and mine is not None and len(held) == len(mine)
        ]
        found = example_hashes(rows) if rows else None
        return None if found is None else np.asarray(found)


def classes_of(bench: Bench) -> Classes | None:
    """The array that holds one class per example; None where there is none, or it is made in the loss function."""
    if "classes" not in bench.memo:
        bench.memo["classes"] = _found(bench)
    held: Classes | None = bench.memo["classes"]
    return held


def _found(bench: Bench) -> Classes | None:
    looks = bench.looks()
    if not looks or looks[-1].problem is not None:
        return None
    arrays = integers(bench.batches[len(looks) - 1])
    flat = {name: array for name, array in arrays.items() if array.ndim == 1 or array.shape[1:] == (1,)}
    for each in looks[-1].targets:
        source = source_of(each.values, flat) if each.values.ndim == 1 and each.values.size > 1 else None
        if source is not None:
            return Classes(source, each.classes, each.ignore_index)
    return None


def hashes(batches: list[Any], pad_id: int | None) -> list[Hashes]:
    """One hash per example of each batch; batches without arrays are left out."""
    found = [example_hashes(arrays_of(batch), pad_id) for batch in batches]
    return [
        np.asarray(each if isinstance(each, np.ndarray) else each.cpu().numpy()) for each in found if each is not None
    ]


def again(loader: Any, most: int) -> list[Any]:
    """The batches of a later pass over a loader: random numbers are drawn from where nobody has drawn yet."""
    from steadyrun.preflight.batch_draw import first_of
    from steadyrun.program.generators import move_on

    if isinstance(loader, list | tuple):
        raise MissingSignal("loader", "the batches are a list, the same at every pass", "give preflight the loader")
    if hasattr(loader, "__next__"):
        raise MissingSignal("loader", "the loader can be read only once", "give preflight a loader, not its iterator")
    move_on(loader)
    try:
        return first_of(loader, most)
    except Exception as problem:
        why = f"a second pass over the loader raised {type(problem).__name__}: {problem}"
        raise MissingSignal("loader", why, "let the loader be read again for every epoch") from problem
