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
    return [_put_back(generator) for generator in _generators(holders)]


def move_on(*holders: Any) -> None:
    """Every generator elsewhere, the global ones too, as they would be in a later epoch."""
    for generator in _generators(holders):
        if isinstance(generator, torch.Generator):
            torch.rand(7, generator=generator, device=generator.device)
        else:
            [generator.random() for _ in range(7)]
    torch.rand(7)
    [random.random() for _ in range(7)]
    np.random.random(7)


def _generators(holders: tuple[Any, ...]) -> list[Any]:
    generators: dict[int, Any] = {}
    visited: set[int] = set()
    for holder in holders:
        _collect(holder, generators, visited, 0)
    return list(generators.values())


def _collect(holder: Any, generators: dict[int, Any], visited: set[int], depth: int) -> None:
    if depth > _DEEPEST or id(holder) in visited or len(visited) > _MOST:
        return
    visited.add(id(holder))
    for member in _below(holder):
        if isinstance(member, _KINDS):
            generators[id(member)] = member
        else:
            _collect(member, generators, visited, depth + 1)


def _below(holder: Any) -> list[Any]:
    """What an object holds, or a short list (of transforms, say); not what is large or belongs to everybody."""
    if isinstance(holder, _LEFT_OUT):
        return []
    if isinstance(holder, list | tuple):
        return list(holder) if len(holder) <= _SHORT else []
    return list(getattr(holder, "__dict__", {}).values())


def _put_back(generator: Any) -> Callable[[], object]:
    if isinstance(generator, np.random.Generator):
        numbers = generator.bit_generator.state
        return lambda: setattr(generator.bit_generator, "state", numbers)
    if isinstance(generator, random.Random):
        words = generator.getstate()
        return lambda: generator.setstate(words)
    state = generator.get_state()
    return lambda: generator.set_state(state)
