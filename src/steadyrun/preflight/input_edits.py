"""What a model is given, changed in one place: to see what it makes of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

_DEEPEST = 5

Change = Callable[[Tensor], Tensor | None]
"""A tensor in the place of another; None leaves it."""


def tensors_in(structure: Any, depth: int = _DEEPEST) -> Iterator[Tensor]:
    """Every tensor in what a model is given or returns."""
    if isinstance(structure, Tensor):
        yield structure
    elif depth and isinstance(structure, Mapping):
        for part in structure.values():
            yield from tensors_in(part, depth - 1)
    elif depth and isinstance(structure, list | tuple):
        for part in structure:
            yield from tensors_in(part, depth - 1)
    elif depth and is_dataclass(structure) and not isinstance(structure, type):
        for field in fields(structure):
            yield from tensors_in(getattr(structure, field.name, None), depth - 1)


def changed(structure: Any, change: Change, depth: int = _DEEPEST) -> Any:
    """The same structure with other tensors; nothing in the original is touched."""
    if isinstance(structure, Tensor):
        replacement = change(structure)
        return structure if replacement is None else replacement
    if not depth:
        return structure
    if isinstance(structure, Mapping):
        return _mapping(structure, {key: changed(part, change, depth - 1) for key, part in structure.items()})
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(changed(part, change, depth - 1) for part in structure))
    if type(structure) in (list, tuple):
        return type(structure)(changed(part, change, depth - 1) for part in structure)
    if is_dataclass(structure) and not isinstance(structure, type):
        twin: Any = copy.copy(structure)
        for field in fields(structure):
            if hasattr(structure, field.name):
                object.__setattr__(twin, field.name, changed(getattr(structure, field.name), change, depth - 1))
        return twin
    return structure


def editing(change: Change) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """`change` as an edit of a model's call."""
    return lambda args, kwargs: (changed(args, change), changed(kwargs, change))


def moved(first: Tensor, second: Tensor) -> Tensor:
    """How far each element moved; where only one of the two is a finite number, infinitely far."""
    if first.is_complex() and second.is_complex():
        first, second = torch.view_as_real(first.detach()), torch.view_as_real(second.detach())
    wide = torch.float64 if first.device.type in {"cpu", "cuda"} else torch.float32
    first, second = first.detach().to(wide), second.detach().to(wide)
    difference = (first - second).abs()
    both = first.isfinite() & second.isfinite()
    alike = (first == second) | (first.isnan() & second.isnan())
    return torch.where(both, difference, torch.where(alike, 0.0, float("inf")))


def size_of(scores: Tensor) -> float:
    """The largest finite magnitude: what a movement is measured against."""
    values = scores.detach().abs()
    finite = values[values.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _mapping(mapping: Mapping[Any, Any], members: dict[Any, Any]) -> Any:
    if type(mapping) is dict:
        return members
    try:
        twin = copy.copy(mapping)
        for key, value in members.items():
            twin[key] = value  # type: ignore[index]
    except Exception:  # a mapping that cannot be written to: the model gets a plain one
        return members
    return twin


# The edits that probes make.


def later_tokens(tokens: Tensor, half: int) -> Any:
    """An edit: other tokens from a place on."""

    def change(tensor: Tensor) -> Tensor | None:
        if tensor.shape != tokens.shape or not torch.equal(tensor.to(tokens.device), tokens):
            return None
        edited = tensor.clone()
        later = edited[:, half:]
        edited[:, half:] = torch.where(later == later.amax(), later.amin(), later.amax())
        return edited

    return editing(change)


def rolled(tensor: Tensor) -> Tensor:
    """The rows one place further."""
    return tensor.roll(1, 0) if tensor.dim() and tensor.shape[0] > 1 else tensor


def rolled_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An edit: rows one place further in what is no label; labels that a model is given stay where they are."""
    named = {
        key: argument if "label" in key or "target" in key else changed(argument, rolled)
        for key, argument in kwargs.items()
    }
    return changed(args, rolled), named


def emptied(tensor: Tensor) -> Tensor:
    """Numbers become zero; rows of whole numbers are read from another place on."""
    if tensor.is_floating_point():
        return torch.zeros_like(tensor)
    if tensor.dtype == torch.bool or tensor.dim() < 2:
        return rolled(tensor)
    return tensor.roll(1, 1)


def opaque(argument: Any) -> bool:
    """Whether there is something in it that an edit cannot look into."""
    if isinstance(argument, dict):
        return any(map(opaque, argument.values()))
    if type(argument) in (list, tuple):
        return any(map(opaque, argument))
    return argument is not None and not isinstance(
        argument, Tensor | bool | int | float | str | torch.device | torch.dtype
    )


def fewer_rows(batch: Any, rows: int) -> Any:
    """The batch without its last example: every tensor and array of so many rows loses one."""
    if isinstance(batch, Tensor | np.ndarray):
        return batch[:-1] if batch.ndim and batch.shape[0] == rows else batch
    if isinstance(batch, dict):
        return type(batch)({key: fewer_rows(part, rows) for key, part in batch.items()})
    if type(batch) in (list, tuple):
        return type(batch)(fewer_rows(part, rows) for part in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        parts = {field.name: getattr(batch, field.name) for field in fields(batch) if field.init}
        return replace(batch, **fewer_rows(parts, rows))
    return batch
