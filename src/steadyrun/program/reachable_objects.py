"""What a training program holds besides its task: modules in plain lists, objects in the closures of its functions.

A step changes them, too (a critic, an averaged copy, a scheduler that only the loop knows), so they are found, kept and
put back like the rest.
"""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steadyrun.program.model_parts import unwrapped
from steadyrun.program.task import Task

_MOST = 2_000  # objects looked at
_LONGEST = 256  # of a container: longer ones hold data
_DEEPEST = 4
_GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_LOOKED_THROUGH = (functools.partial, types.MethodType, types.FunctionType, list, tuple, set, Mapping, deque)
_PLAIN = (bool, int, float, str, bytes, type(None), np.ndarray, type, types.ModuleType)


@dataclass
class Reached:
    """What was found, each object once."""

    modules: list[nn.Module] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    stateful: list[Any] = field(default_factory=list)  # schedulers, scalers, averages: they have a state_dict
    generators: list[Any] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)  # of the program's own classes


_OWN = frozenset(vars(nn.Module()))


def reached(task: Task) -> Reached:
    """Everything with a state that the task's functions and modules lead to, beyond the task's own objects."""
    found = Reached()
    own = [unwrapped(task.model), task.model, task.scheduler, task.scaler, task.loader, task.val_loader, task.tokenizer]
    seen = {id(held) for held in [*own, *task.optimizers, *task.model.modules(), task]}
    first: list[Any] = [task.loss_fn, task.train_step]
    first += [value for module in task.model.modules() for name, value in vars(module).items() if name not in _OWN]
    # An optimizer may wrap another, whose moments are its own.
    first += [
        value
        for each in task.optimizers
        for name, value in vars(each).items()
        if name not in {"param_groups", "state", "defaults"}
    ]
    waiting = deque((each, 0) for each in first)
    while waiting and len(seen) < _MOST:
        held, depth = waiting.popleft()
        if isinstance(held, (*_PLAIN, Tensor)) or id(held) in seen:
            continue
        seen.add(id(held))
        if not _sorted_in(found, held) and depth < _DEEPEST:
            inside = _inside(held)
            waiting.extend((each, depth + 1) for each in inside)
            if inside and not isinstance(held, _LOOKED_THROUGH):
                found.objects.append(held)
    return found


def _sorted_in(found: Reached, held: Any) -> bool:
    """Put an object where it belongs; False where one has to look inside."""
    if isinstance(held, nn.Module):
        found.modules.append(held)
    elif hasattr(held, "param_groups") and hasattr(held, "step"):
        found.optimizers.append(held)
    elif isinstance(held, _GENERATORS):
        found.generators.append(held)
    elif callable(getattr(held, "state_dict", None)) and callable(getattr(held, "load_state_dict", None)):
        found.stateful.append(held)
    else:
        return False
    return True


def _inside(held: Any) -> list[Any]:
    if isinstance(held, functools.partial):
        return [held.func, *held.args, *held.keywords.values()]
    if isinstance(held, types.MethodType):
        return [held.__self__, held.__func__]
    if isinstance(held, types.FunctionType):
        return _of_function(held)
    if isinstance(held, list | tuple | set | Mapping | deque):
        values = held.values() if isinstance(held, Mapping) else held
        return list(values) if len(held) <= _LONGEST else []
    if type(held).__module__.split(".")[0] in {"torch", "numpy", "builtins", "transformers", "tokenizers"}:
        return []
    return list(getattr(held, "__dict__", {}).values())


def _of_function(held: types.FunctionType) -> list[Any]:
    """The values in a function's closure, its defaults, and the globals of its own file that it names."""
    values: list[Any] = [*(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values()]
    for cell in held.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    for name in held.__code__.co_names:
        value = held.__globals__.get(name)
        if isinstance(value, types.FunctionType) and value.__globals__ is not held.__globals__:
            continue
        values.append(value)
    return values
