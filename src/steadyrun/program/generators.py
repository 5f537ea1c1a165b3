"""Random generators: those that loaders, samplers and datasets hold themselves are kept, put back, moved on."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_DEEPEST = 4
_MOST, _SHORT = 2000, 32  # objects looked at; elements of a list
_LEFT_OUT = (type, ModuleType, FunctionType, MethodType, torch.nn.Module, torch.Tensor, np.ndarray)
_KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def kept_generators(*holders: Any) -> list[Callable[[], object]]:
    """One function for each generator that puts it back as it is now."""
    return [_put_back(held) for held in _generators(holders)]


def move_on(*holders: Any) -> None:
    """Every generator elsewhere, the global ones too, as they would be in a later epoch."""
    for held in _generators(holders):
        if isinstance(held, torch.Generator):
            torch.rand(7, generator=held, device=held.device)
        else:
            [held.random() for _ in range(7)]
    torch.rand(7)
    [random.random() for _ in range(7)]
    np.random.random(7)


def _generators(holders: tuple[Any, ...]) -> list[Any]:
    found: dict[int, Any] = {}
    seen: set[int] = set()
    for holder in holders:
        _collect(holder, found, seen, 0)
    return list(found.values())


def _collect(holder: Any, found: dict[int, Any], seen: set[int], depth: int) -> None:
    if depth > _DEEPEST or id(holder) in seen or len(seen) > _MOST:
        return
    seen.add(id(holder))
    for held in _below(holder):
        if isinstance(held, _KINDS):
            found[id(held)] = held
        else:
            _collect(held, found, seen, depth + 1)


def _below(holder: Any) -> list[Any]:
    """What an object holds, or a short list (of transforms, say); not what is large or belongs to everybody."""
    if isinstance(holder, _LEFT_OUT):
        return []
    if isinstance(holder, list | tuple):
        return list(holder) if len(holder) <= _SHORT else []
    return list(getattr(holder, "__dict__", {}).values())


def _put_back(held: Any) -> Callable[[], object]:
    if isinstance(held, np.random.Generator):
        numbers = held.bit_generator.state
        return lambda: setattr(held.bit_generator, "state", numbers)
    if isinstance(held, random.Random):
        words = held.getstate()
        return lambda: held.setstate(words)
    state = held.get_state()
    return lambda: held.set_state(state)
