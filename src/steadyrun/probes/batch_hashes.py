"""What was in a batch: hashes of its examples, their number, the number of tokens.

A hash is a weighted sum of the raw bits modulo 2**64, folded to 52 bits so that it is exact as a float64.
The order of summation does not matter, so the same batch has the same hash on every device. The arithmetic
is written once for numpy and torch alike: on the CPU numpy's small operations cost a fifth of torch's, on an
accelerator the hash is a reduction that moves to the host with everything else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.probes.row_queue import HostArray
from steadyrun.probes.scalars import is_tensor
from steadyrun.program.containers import leaves

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array = Any  # a numpy array or a torch tensor

HASH_BITS = 52
SAMPLED_ELEMENTS = 1_024  # of a larger example, evenly spaced elements stand for the whole
IGNORED_LABEL = -100  # what torch's losses skip by default


def arrays_of(batch: object) -> list[Array]:
    """Every array in a batch, in tuples, lists and mappings: on the CPU as numpy, elsewhere as torch tensors."""
    arrays = [from_tensor(leaf.detach()) if is_tensor(leaf) else _plain(leaf) for leaf in leaves(batch)]
    return [array for array in arrays if array is not None]


def _plain(leaf: object) -> Array | None:
    return leaf if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf" else None


def example_hashes(arrays: Sequence[Array], pad_id: int | None = None) -> Array | None:
    """One 52-bit hash per example (row) over all `arrays` of a batch, or None where there are none.

    Where `pad_id` is known, an example keeps its hash however far it is padded.
    """
    sums = [total for _, total in example_sums(arrays, pad_id)]
    return folded(sums) if sums else None


def example_sums(arrays: Sequence[Array], pad_id: int | None = None) -> list[tuple[Array, Array]]:
    """The arrays with a row per example, each with the weighted sums of its rows: added and folded they are hashes."""
    sizes = [array.shape[0] if array.ndim else 1 for array in arrays]
    kept = [array for array, size in zip(arrays, sizes, strict=True) if size == sizes[0] and size]
    parts = [_bits(array, sizes[0]) for array in kept]
    if pad_id is not None:
        parts = [rows * ((rows != pad_id) & (rows != IGNORED_LABEL)) for rows in parts]
    sums = [_weighted(rows, weights(index, rows.shape[1], rows)) for index, rows in enumerate(parts)]
    return list(zip(kept, sums, strict=True))


def _weighted(rows: Array, weights: Array) -> Array:
    return rows.dot(weights) if isinstance(rows, np.ndarray) else (rows * weights).sum(1)


def inputs_and_targets(summed: list[tuple[Array, Array]]) -> tuple[Array, Array] | None:
    """A hash of each example's inputs and one of its target; None if there is one array alone.

    The target is the last list of classes, else the last array.
    """
    last = len(summed) - 1
    if last < 1:
        return None
    at = next((index for index in range(last, -1, -1) if is_classes(summed[index][0])), last)
    sums = [total for _, total in summed]
    return folded(sums[:at] + sums[at + 1 :]), fold(sums[at])


def is_classes(array: Array) -> bool:
    return bool(array.ndim == 1 and not _is_float(array) and array.dtype.itemsize > 1 and array.shape[0] > 1)


def batch_hash(examples: Array) -> Array:
    """One hash for the batch, from the hashes of its examples and their order."""
    return fold((examples * weights(0, examples.shape[0], examples)).sum())


def input_hash(inputs: object) -> Array | None:
    """One hash for whatever a model is given; None if it holds no array."""
    arrays = arrays_of(inputs)
    examples = example_hashes(arrays) if arrays else None
    return None if examples is None else batch_hash(examples)


def count_tokens(arrays: Sequence[Array], pad_id: int | None) -> float | Tensor | None:
    """Elements of the first integer array with at least two dimensions, without padding if `pad_id` is known."""
    for array in arrays:
        if array.ndim >= 2 and not _is_float(array) and array.dtype.itemsize > 1:
            if pad_id is None:
                return float(np.prod(array.shape))
            tokens = (array != pad_id).sum()
            return float(tokens) if isinstance(array, np.ndarray) else tokens
    return None


def repeated_tokens(arrays: Sequence[Array], pad_id: int | None) -> float | Tensor | None:
    """The fraction of tokens that equal the token before them, in the first array that `count_tokens` counts."""
    for array in arrays:
        if array.ndim >= 2 and not _is_float(array) and array.dtype.itemsize > 1 and array.shape[-1] > 1:
            same = array[..., 1:] == array[..., :-1]
            if pad_id is not None:
                real = array[..., 1:] != pad_id
                same, count = same & real, real.sum()
            else:
                count = same.size if isinstance(array, np.ndarray) else same.numel()
            if isinstance(array, np.ndarray):
                return float(same.sum() / max(1, count))
            share: Tensor = same.sum() / (count.clamp(min=1) if pad_id is not None else max(1, count))
            return share
    return None


def label_hash(arrays: Sequence[Array]) -> Array | None:
    """A hash of the class labels alone: the order of examples shows in it, however their inputs are augmented."""
    for array in reversed(arrays):
        if is_classes(array):
            wide = array.astype(np.int64) if isinstance(array, np.ndarray) else array.long()
            return batch_hash(wide)
    return None


def ignored_labels(arrays: Sequence[Array]) -> float | Tensor | None:
    """The fraction of labels that torch's losses skip, in the last array of integers; None if none is skipped."""
    for array in reversed(arrays):
        if not _is_float(array) and array.dtype.itemsize > 1 and array.ndim:
            skipped = array == IGNORED_LABEL
            if isinstance(skipped, np.ndarray):
                return float(skipped.mean()) if skipped.any() else None
            share: Tensor = skipped.float().mean()
            return share
    return None


def nonfinite_values(arrays: Sequence[Array]) -> float | Tensor | None:
    """The fraction of the batch's floating-point values that are NaN or infinite; None if it holds no such array."""
    floats = [array for array in arrays if _is_float(array) and all(array.shape)]
    if all(isinstance(array, np.ndarray) for array in floats):
        return sum(map(_count_nonfinite, floats)) / sum(array.size for array in floats) if floats else None
    import torch

    total = float(sum(math.prod(array.shape) for array in floats))

    counts = [(~torch.isfinite(torch.as_tensor(array))).sum() for array in floats]
    fraction: Tensor = _added(counts) / total
    return fraction


def _count_nonfinite(array: HostArray) -> int:
    """A sum that is finite has finite terms: one quick pass for nearly every batch."""
    with np.errstate(all="ignore"):
        return 0 if np.isfinite(array.sum()) else int(array.size - np.isfinite(array).sum())


def folded(sums: list[Array]) -> Array:
    """Sums of equal length, added up and made hashes."""
    return fold(_added(sums))


def fold(total: Array) -> Array:
    """A sum modulo 2**64 as a hash of 52 bits."""
    return (total ^ (total >> 29)) & ((1 << HASH_BITS) - 1)


def from_tensor(tensor: Tensor) -> Array | None:
    """A CPU tensor as numpy; bfloat16, which numpy lacks, as its bits; None for what has no plain elements."""
    if tensor.device.type != "cpu":
        return None if tensor.is_sparse or tensor.is_complex() else tensor
    try:
        array = tensor.numpy()
    except (TypeError, RuntimeError):  # RuntimeError: a nested tensor, a conjugate view
        import torch

        return tensor.view(torch.int16).numpy() if tensor.dtype == torch.bfloat16 else None
    return array if array.dtype.kind in "biuf" else None


def _is_float(array: Array) -> bool:
    return bool(array.dtype.kind == "f" if isinstance(array, np.ndarray) else array.is_floating_point())


def _bits(array: Array, rows: int) -> Array:
    """The raw bits of (a part of) each example as 64-bit integers, one row per example."""
    flat = array.reshape(rows, -1)
    stride = -(-flat.shape[1] // SAMPLED_ELEMENTS)
    if stride > 1:
        flat = flat[:, ::stride]
    if isinstance(flat, np.ndarray):
        whole = np.ascontiguousarray(flat)
        return (whole.view(f"i{whole.dtype.itemsize}") if whole.dtype.kind == "f" else whole).astype(np.int64)
    import torch

    views = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return (flat.contiguous().view(views[flat.element_size()]) if flat.is_floating_point() else flat).long()


def _added(sums: list[Array]) -> Array:
    """The sum of equally long arrays, on the accelerator if one of them is there."""
    if all(isinstance(part, np.ndarray) for part in sums):
        return sum(sums[1:], start=sums[0])
    import torch

    tensors = [torch.as_tensor(part) for part in sums]
    device = next((tensor.device for tensor in tensors if tensor.device.type != "cpu"), tensors[0].device)
    return sum(tensor.to(device) for tensor in tensors)


def weights(index: int, width: int, like: Array) -> Array:
    """Multipliers for the columns of one array of the batch; each array has its own, whatever the others' width."""
    return _drawn_weights(index, width, None if isinstance(like, np.ndarray) else like.device)


@lru_cache(maxsize=64)
def _drawn_weights(index: int, width: int, device: torch.device | None) -> Array:
    """Odd pseudo-random 64-bit integers, the same on every machine; no random state of the run is touched."""
    drawn = np.random.Generator(np.random.PCG64(index)).integers(-(2**62), 2**62, size=width, dtype=np.int64)
    weights = drawn * 2 + 1
    if device is None:
        return weights
    import torch

    return torch.from_numpy(weights).to(device)


def is_list_of_batches(batch: object) -> bool:
    """Whether this is a list of micro-batches (tuples, lists, mappings) rather than one batch of tensors."""
    return isinstance(batch, list | tuple) and bool(batch) and all(isinstance(p, list | tuple | dict) for p in batch)


def joined(hashes: list[Array]) -> Array:
    if all(isinstance(part, np.ndarray) for part in hashes):
        return np.concatenate(hashes)
    import torch

    return torch.cat([torch.as_tensor(part) for part in hashes])
