"""What was in a batch: hashes of its examples, their number, the number of tokens.

A hash is a weighted sum of the raw bits modulo 2**64, folded to 52 bits so that it is exact as a float64.
The order of summation does not matter, so the same batch has the same hash on every device, and on an
accelerator the hash is a reduction that moves to the host with everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.probes.scalars import is_tensor

if TYPE_CHECKING:
    from torch import Tensor

HASH_BITS = 52
_IGNORED_LABEL = -100  # what torch's losses skip by default
SAMPLED_ELEMENTS = 65_536  # of a larger example or tensor, evenly spaced elements stand for the whole


def tensors_of(batch: Any) -> Iterator[Tensor]:
    """Every tensor in a batch: bare, in tuples, lists and mappings, or as numpy arrays."""
    if is_tensor(batch):
        yield batch.detach()
    elif isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        import torch

        yield torch.from_numpy(np.ascontiguousarray(batch))
    elif isinstance(batch, Mapping):
        for item in batch.values():
            yield from tensors_of(item)
    elif isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        for item in batch:
            yield from tensors_of(item)


def example_hashes(batch: Any, pad_id: int | None = None) -> Tensor | None:
    """One 52-bit hash per example (row), or None where the batch holds no tensors.

    Where `pad_id` is known, an example keeps its hash however far it is padded.
    """
    found = [tensor for tensor in tensors_of(batch) if tensor.numel() and not tensor.is_sparse]
    if not found:
        return None
    rows = found[0].shape[0] if found[0].dim() else 1
    total: Tensor | None = None
    for place, tensor in enumerate(found):
        if (tensor.shape[0] if tensor.dim() else 1) == rows:
            part = _row_hash(tensor, rows, place, pad_id)
            total = part if total is None else total + part.to(total.device)
    return None if total is None else _fold(total)


def batch_hash(examples: Tensor) -> Tensor:
    """One hash for the batch, from the hashes of its examples and their order."""
    return _fold((examples * _weights(examples.numel(), 9_973, examples.device)).sum())


def count_tokens(batch: Any, pad_id: int | None) -> float | Tensor | None:
    """Elements of the first integer tensor with at least two dimensions, without padding if `pad_id` is known."""
    for tensor in tensors_of(batch):
        if tensor.dim() >= 2 and not tensor.is_floating_point() and tensor.dtype.itemsize > 1:
            return float(tensor.numel()) if pad_id is None else (tensor != pad_id).sum()
    return None


def _row_hash(tensor: Tensor, rows: int, place: int, pad_id: int | None) -> Tensor:
    flat = tensor.reshape(rows, -1)
    stride = -(-flat.shape[1] // max(1, SAMPLED_ELEMENTS // rows))
    if stride > 1:
        flat = flat[:, ::stride]
    bits = _as_integers(flat).long()
    if pad_id is not None and not flat.is_floating_point():
        bits = bits.masked_fill((bits == pad_id) | (bits == _IGNORED_LABEL), 0)
    return (bits * _weights(bits.shape[1], place, bits.device)).sum(1)


def _as_integers(tensor: Tensor) -> Tensor:
    import torch

    if not tensor.is_floating_point() and not tensor.is_complex():
        return tensor
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).flatten(1)
    views = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(views[tensor.element_size()])


def _fold(total: Tensor) -> Tensor:
    return (total ^ (total >> 29)) & ((1 << HASH_BITS) - 1)


def _weights(count: int, place: int, device: Any) -> Tensor:
    return _all_weights(max(count, SAMPLED_ELEMENTS), place, device)[:count]


@lru_cache(maxsize=16)
def _all_weights(count: int, place: int, device: Any) -> Tensor:
    """Odd pseudo-random 64-bit multipliers, the same on every machine; torch's own generator stays untouched."""
    import torch

    random = np.random.Generator(np.random.PCG64(place))
    return torch.from_numpy(random.integers(-(2**62), 2**62, size=count, dtype=np.int64) * 2 + 1).to(device)
