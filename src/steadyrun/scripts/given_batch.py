"""What of a call's arguments is the batch, if no data loader gave one.

What a model is given are inputs: a second tensor may be a hidden state, a time or a mask. Only an argument that the
model itself names as its target is taken for one.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

_TARGETS = {"target", "targets", "label", "labels", "y", "y_true", "tgt", "trg", "ground_truth", "gt"}
_INNER = ("module", "_orig_mod")  # the model in a wrapper for several processes, or for a compiled model


def given_batch(module: nn.Module, args: tuple[Any, ...]) -> list[Tensor]:
    """The first tensor that may hold examples, and the one that is named as their target; none if it is computed."""
    tensors = [(index, value) for index, value in enumerate(args) if isinstance(value, Tensor)]
    if any(tensor.grad_fn is not None for _, tensor in tensors):
        return []
    rows = [(index, tensor) for index, tensor in tensors if tensor.dim()]
    if not rows:
        return []
    names = _names(module)
    targets = [tensor for index, tensor in rows[1:] if index < len(names) and names[index] in _TARGETS]
    return [rows[0][1], *targets[-1:]]


def _names(module: nn.Module) -> list[str]:
    """The names of the arguments that a module's `forward` takes by position."""
    for name in _INNER:
        inner = getattr(module, name, None)
        module = inner if isinstance(inner, nn.Module) else module
    try:
        return [name.lower() for name in inspect.signature(module.forward).parameters]
    except (TypeError, ValueError, AttributeError):  # such as a module compiled by torch.jit
        return []
