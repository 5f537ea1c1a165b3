"""What a model is given, changed in one place: to see what it makes of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

# What a model is given, changed in one place: a tensor in tuples, mappings and objects exchanged for another.


_DEEPEST = 5

Change = Callable[[Tensor], Tensor | None]
"""A tensor in the place of another; None leaves it."""


def tensors_in(held: Any, depth: int = _DEEPEST) -> Iterator[Tensor]:
    """Every tensor in what a model is given or returns."""
    if isinstance(held, Tensor):
        yield held
    elif depth and isinstance(held, Mapping):
        for each in held.values():
            yield from tensors_in(each, depth - 1)
    elif depth and isinstance(held, list | tuple):
        for each in held:
            yield from tensors_in(each, depth - 1)
    elif depth and is_dataclass(held) and not isinstance(held, type):
        for part in fields(held):
            yield from tensors_in(getattr(held, part.name, None), depth - 1)


def changed(held: Any, change: Change, depth: int = _DEEPEST) -> Any:
    """The same structure with other tensors; nothing in the original is touched."""
    if isinstance(held, Tensor):
        other = change(held)
        return held if other is None else other
    if not depth:
        return held
    if isinstance(held, Mapping):
        return _mapping(held, {key: changed(each, change, depth - 1) for key, each in held.items()})
    if isinstance(held, tuple) and hasattr(held, "_fields"):
        return type(held)(*(changed(each, change, depth - 1) for each in held))
    if type(held) in (list, tuple):
        return type(held)(changed(each, change, depth - 1) for each in held)
    if is_dataclass(held) and not isinstance(held, type):
        twin: Any = copy.copy(held)
        for part in fields(held):
            if hasattr(held, part.name):
                object.__setattr__(twin, part.name, changed(getattr(held, part.name), change, depth - 1))
        return twin
    return held


def editing(change: Change) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """`change` as an edit of a model's call."""
    return lambda args, kwargs: (changed(args, change), changed(kwargs, change))


def moved(one: Tensor, other: Tensor) -> Tensor:
    """How far each element moved; where only one of the two is a finite number, infinitely far."""
    if one.is_complex() and other.is_complex():
        one, other = torch.view_as_real(one.detach()), torch.view_as_real(other.detach())
    wide = torch.float64 if one.device.type in {"cpu", "cuda"} else torch.float32
    one, other = one.detach().to(wide), other.detach().to(wide)
    difference = (one - other).abs()
    both = one.isfinite() & other.isfinite()
    alike = (one == other) | (one.isnan() & other.isnan())
    return torch.where(both, difference, torch.where(alike, 0.0, float("inf")))


def size_of(scores: Tensor) -> float:
    """The largest finite magnitude: what a movement is measured against."""
    values = scores.detach().abs()
    finite = values[values.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _mapping(held: Mapping[Any, Any], members: dict[Any, Any]) -> Any:
    if type(held) is dict:
        return members
    try:
        other = copy.copy(held)
        for key, value in members.items():
            other[key] = value  # type: ignore[index]
    except Exception:  # a mapping that cannot be written to: the model gets a plain one
        return members
    return other


# Changes to what a model is given, to see what it makes of them: nothing, other rows, other tokens later on.


def later_tokens(tokens: Tensor, half: int) -> Any:
    """An edit: other tokens from a place on."""

    def change(held: Tensor) -> Tensor | None:
        if held.shape != tokens.shape or not torch.equal(held.to(tokens.device), tokens):
            return None
        other = held.clone()
        later = other[:, half:]
        other[:, half:] = torch.where(later == later.amax(), later.amin(), later.amax())
        return other

    return editing(change)


def rolled(held: Tensor) -> Tensor:
    """The rows one place further."""
    return held.roll(1, 0) if held.dim() and held.shape[0] > 1 else held


def rolled_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An edit: rows one place further in what is no label; labels that a model is given stay where they are."""
    named = {key: held if "label" in key or "target" in key else changed(held, rolled) for key, held in kwargs.items()}
    return changed(args, rolled), named


def emptied(held: Tensor) -> Tensor:
    """Numbers become zero; rows of whole numbers are read from another place on."""
    if held.is_floating_point():
        return torch.zeros_like(held)
    if held.dtype == torch.bool or held.dim() < 2:
        return rolled(held)
    return held.roll(1, 1)


def opaque(held: Any) -> bool:
    """Whether there is something in it that an edit cannot look into."""
    if isinstance(held, dict):
        return any(map(opaque, held.values()))
    if type(held) in (list, tuple):
        return any(map(opaque, held))
    return held is not None and not isinstance(held, Tensor | bool | int | float | str | torch.device | torch.dtype)


def fewer_rows(batch: Any, rows: int) -> Any:
    """The batch without its last example: every tensor and array of so many rows loses one."""
    if isinstance(batch, Tensor | np.ndarray):
        return batch[:-1] if batch.ndim and batch.shape[0] == rows else batch
    if isinstance(batch, dict):
        return type(batch)({key: fewer_rows(held, rows) for key, held in batch.items()})
    if type(batch) in (list, tuple):
        return type(batch)(fewer_rows(held, rows) for held in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        parts = {each.name: getattr(batch, each.name) for each in fields(batch) if each.init}
        return replace(batch, **fewer_rows(parts, rows))
    return batch
