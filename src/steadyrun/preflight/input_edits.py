"""Edits of a model's inputs that show how its outputs react."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.program.containers import leaves, rebuilt

Change = Callable[[Tensor], Tensor | None]
"""A replacement for a tensor; None keeps it."""


def tensors_in(structure: Any) -> Iterator[Tensor]:
    """Every tensor in the inputs or outputs of a model."""
    return (leaf for leaf in leaves(structure) if isinstance(leaf, Tensor))


def changed(structure: Any, change: Change) -> Any:
    """A copy of the structure with changed tensors; the original stays untouched."""

    def replaced(leaf: Any) -> Any:
        other = change(leaf) if isinstance(leaf, Tensor) else None
        return leaf if other is None else other

    return rebuilt(structure, replaced)


def editing(change: Change) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """`change` as an edit of a model's call."""
    return lambda args, kwargs: (changed(args, change), changed(kwargs, change))


def moved(first: Tensor, second: Tensor) -> Tensor:
    """How far each element moved; infinity if only one of the two is finite."""
    if first.is_complex() and second.is_complex():
        first, second = torch.view_as_real(first.detach()), torch.view_as_real(second.detach())
    wide = torch.float64 if first.device.type in {"cpu", "cuda"} else torch.float32
    first, second = first.detach().to(wide), second.detach().to(wide)
    difference = (first - second).abs()
    both = first.isfinite() & second.isfinite()
    alike = (first == second) | (first.isnan() & second.isnan())
    return torch.where(both, difference, torch.where(alike, 0.0, float("inf")))


def size_of(scores: Tensor) -> float:
    """The largest finite magnitude, the reference for a change."""
    values = scores.detach().abs()
    finite = values[values.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


# The edits that probes make.


def later_tokens(tokens: Tensor, half: int) -> Any:
    """An edit: other tokens from an index on."""

    def change(tensor: Tensor) -> Tensor | None:
        if tensor.shape != tokens.shape or not torch.equal(tensor.to(tokens.device), tokens):
            return None
        edited = tensor.clone()
        later = edited[:, half:]
        edited[:, half:] = torch.where(later == later.amax(), later.amin(), later.amax())
        return edited

    return editing(change)


def rolled(tensor: Tensor) -> Tensor:
    """The rows shifted by one."""
    return tensor.roll(1, 0) if tensor.dim() and tensor.shape[0] > 1 else tensor


def rolled_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An edit: the input rows shifted by one, with labels unchanged."""
    named = {
        key: argument if "label" in key or "target" in key else changed(argument, rolled)
        for key, argument in kwargs.items()
    }
    return changed(args, rolled), named


def emptied(tensor: Tensor) -> Tensor:
    """Zeros for floats; rows of integers shifted by one column."""
    if tensor.is_floating_point():
        return torch.zeros_like(tensor)
    if tensor.dtype == torch.bool or tensor.dim() < 2:
        return rolled(tensor)
    return tensor.roll(1, 1)


def opaque(argument: Any) -> bool:
    """Whether it contains an object that an edit cannot change."""
    if isinstance(argument, dict):
        return any(map(opaque, argument.values()))
    if type(argument) in (list, tuple):
        return any(map(opaque, argument))
    return argument is not None and not isinstance(
        argument, Tensor | bool | int | float | str | torch.device | torch.dtype
    )


def fewer_rows(batch: Any, rows: int) -> Any:
    """The batch without its last example: every tensor and array with `rows` rows loses one."""

    def without_last(leaf: Any) -> Any:
        whole = isinstance(leaf, Tensor | np.ndarray) and leaf.ndim and leaf.shape[0] == rows
        return leaf[:-1] if whole else leaf

    return rebuilt(batch, without_last)
