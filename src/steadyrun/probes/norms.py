"""Norms of many tensors at once: one implementation for gradients, parameters and moments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from steadyrun.program.torch_compat import foreach_norm

_SMALL_FLOATS = (torch.float16, torch.bfloat16)
_PLAIN, _WIDE, _DENSE = (Tensor, nn.Parameter), torch.float32, torch.strided
_WIDENED = (*_SMALL_FLOATS, torch.float32)


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each tensor, as one float vector on the first tensor's device."""
    first = tensors[0]
    if all(type(t) in _PLAIN and t.dtype == _WIDE and t.layout == _DENSE and t.device == first.device for t in tensors):
        with torch.no_grad():
            return torch.stack(foreach_norm(list(tensors)))
    plain = [_plain(tensor) for tensor in tensors]
    if any(tensor.dtype in _SMALL_FLOATS for tensor in plain):  # their own norm would overflow
        if all(tensor.dtype in _WIDENED for tensor in plain):
            per_tensor = list(foreach_norm(plain, 2, torch.float32))
        else:
            per_tensor = [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in plain]
    else:
        per_tensor = list(foreach_norm(plain))
    first = per_tensor[0]
    if any(
        norm.device != first.device or norm.dtype != torch.float32 or type(norm) is not Tensor for norm in per_tensor
    ):
        per_tensor = [whole(norm).to(first.device, torch.float32) for norm in per_tensor]
    return torch.stack(per_tensor)


def global_norm(tensors: Sequence[Tensor]) -> Tensor | None:
    """The Euclidean norm of all tensors together, None of none."""
    return torch.linalg.vector_norm(norms(tensors)) if tensors else None


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def whole(tensor: Tensor) -> Tensor:
    """A DTensor (whose norm is partial until it is reduced over its mesh) as a plain tensor."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full
