"""The arrays of a batch by name, and which of them an operation of the model reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.probes.batch_hashes import arrays_of
from steadyrun.probes.scalars import is_tensor
from steadyrun.program.containers import named_leaves

Integers = npt.NDArray[np.int64]
_CUT = 2  # columns that a shift may cut off


def named(batch: Any) -> dict[str, Any]:
    """Every tensor and array of a batch by its path, such as `[0]` or `['labels']`."""
    named = ((path or "the batch", leaf) for path, leaf in named_leaves(batch))
    return {path: leaf for path, leaf in named if is_tensor(leaf) or isinstance(leaf, np.ndarray)}


def integers(batch: Any) -> dict[str, Integers]:
    """The integer arrays of a batch on the CPU, without booleans."""
    arrays = {}
    for name, tensor in named(batch).items():
        array = as_numpy(tensor)
        if array is not None and array.dtype.kind in "iu":
            arrays[name] = array.astype(np.int64, copy=False)
    return arrays


def as_numpy(tensor: Any) -> npt.NDArray[Any] | None:
    """A tensor on any device as numpy; None if it has no plain elements."""
    if is_tensor(tensor):
        if tensor.layout.__str__() != "torch.strided" or getattr(tensor, "is_nested", False):
            return None
        arrays = arrays_of(tensor.detach().cpu())
        return arrays[0] if arrays else None
    return tensor if isinstance(tensor, np.ndarray) and tensor.dtype.kind in "biuf" else None


@dataclass(frozen=True)
class ArraySource:
    """The array of a batch that an operation reads, and the columns that a shift cuts off."""

    name: str
    before: int = 0
    after: int = 0
    turned: bool = False  # transposed

    @property
    def words(self) -> str:
        return f"batch{self.name}" if self.name.startswith(("[", ".")) else self.name

    def of(self, arrays: Mapping[str, Integers]) -> Integers | None:
        """The same part of another batch; None if it has no such array."""
        array = arrays.get(self.name)
        if array is None or (self.before + self.after and (array.ndim < 2 or array.shape[1] <= 2)):
            return None
        return _part(array, self.before, self.after)


def source_of(taken: Integers, arrays: Mapping[str, Integers]) -> ArraySource | None:
    """The array of the batch with these numbers, whole or shifted; None if no array matches."""
    if not taken.size:
        return None
    for name, array in arrays.items():
        for before, after in _cuts(array):
            part = _part(array, before, after)
            if part.size != taken.size:
                continue
            if np.array_equal(part.reshape(-1), taken.reshape(-1)):
                return ArraySource(name, before, after)
            if part.ndim == 2 and np.array_equal(part.T.reshape(-1), taken.reshape(-1)):
                return ArraySource(name, before, after, turned=True)
    return None


def _cuts(array: Integers) -> list[tuple[int, int]]:
    if array.ndim < 2 or array.shape[1] <= _CUT:
        return [(0, 0)]
    return [(before, cut - before) for cut in range(_CUT + 1) for before in range(cut + 1)]


def _part(array: Integers, before: int, after: int) -> Integers:
    return array[:, before : array.shape[1] - after] if before or after else array
