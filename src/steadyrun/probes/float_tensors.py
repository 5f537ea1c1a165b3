"""The floating tensors in what a module takes or returns, and how much of a huge one is looked at."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from steadyrun.program.containers import leaves
from steadyrun.program.torch_compat import is_spread

_MOST_ELEMENTS = 2**22


def thinned(values: Tensor) -> Tensor:
    """All of an ordinary activation; of a huge one evenly spaced rows, so that measuring it needs little memory."""
    rows = values.reshape(-1, values.shape[-1])
    return rows[:: -(-rows.numel() // _MOST_ELEMENTS)]


def floats_in(output: object, depth: int = 3) -> Iterator[Tensor]:
    """The floating tensors in what a module takes or returns: tensors, tuples, mappings, output objects.

    One that is spread over processes is left out: arithmetic with it may wait for the other ranks.
    """
    tensors = (leaf for leaf in leaves(output, depth) if isinstance(leaf, Tensor) and not is_spread(leaf))
    return (tensor for tensor in tensors if tensor.is_floating_point())


def first_float(output: object) -> Tensor | None:
    """The first floating tensor with elements."""
    return next((tensor for tensor in floats_in(output) if tensor.numel() and tensor.dim()), None)
