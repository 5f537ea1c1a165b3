"""What a model is given, changed in one place: a tensor in tuples, mappings and objects exchanged for another."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

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
