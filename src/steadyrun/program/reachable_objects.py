"""What a training program holds besides its task: modules in plain lists, objects in the closures of its functions.

A step also changes them (a critic, an averaged copy, a scheduler that only the loop knows), so they are found, kept and
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
    reachable = Reached()
    own = [unwrapped(task.model), task.model, task.scheduler, task.scaler, task.loader, task.val_loader, task.tokenizer]
    visited = {id(known) for known in [*own, *task.optimizers, *task.model.modules(), task]}
    roots: list[Any] = [task.loss_fn, task.train_step]
    roots += [value for module in task.model.modules() for name, value in vars(module).items() if name not in _OWN]
    # An optimizer may wrap another, whose moments are its own.
    roots += [
        value
        for optimizer in task.optimizers
        for name, value in vars(optimizer).items()
        if name not in {"param_groups", "state", "defaults"}
    ]
    waiting = deque((root, 0) for root in roots)
    while waiting and len(visited) < _MOST:
        candidate, depth = waiting.popleft()
        if isinstance(candidate, (*_PLAIN, Tensor)) or id(candidate) in visited:
            continue
        visited.add(id(candidate))
        if not _sorted_in(reachable, candidate) and depth < _DEEPEST:
            members = _members(candidate)
            waiting.extend((member, depth + 1) for member in members)
            if members and not isinstance(candidate, _LOOKED_THROUGH):
                reachable.objects.append(candidate)
    return reachable


def _sorted_in(reachable: Reached, candidate: Any) -> bool:
    """Put an object where it belongs; False where one has to look inside."""
    if isinstance(candidate, nn.Module):
        reachable.modules.append(candidate)
    elif hasattr(candidate, "param_groups") and hasattr(candidate, "step"):
        reachable.optimizers.append(candidate)
    elif isinstance(candidate, _GENERATORS):
        reachable.generators.append(candidate)
    elif callable(getattr(candidate, "state_dict", None)) and callable(getattr(candidate, "load_state_dict", None)):
        reachable.stateful.append(candidate)
    else:
        return False
    return True


def _members(holder: Any) -> list[Any]:
    if isinstance(holder, functools.partial):
        return [holder.func, *holder.args, *holder.keywords.values()]
    if isinstance(holder, types.MethodType):
        return [holder.__self__, holder.__func__]
    if isinstance(holder, types.FunctionType):
        return _members_of_function(holder)
    if isinstance(holder, list | tuple | set | Mapping | deque):
        values = holder.values() if isinstance(holder, Mapping) else holder
        return list(values) if len(holder) <= _LONGEST else []
    if type(holder).__module__.split(".")[0] in {"torch", "numpy", "builtins", "transformers", "tokenizers"}:
        return []
    return list(getattr(holder, "__dict__", {}).values())


def _members_of_function(function: types.FunctionType) -> list[Any]:
    """The values in a function's closure, its defaults, and the globals of its own file that it names."""
    values: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, types.FunctionType) and value.__globals__ is not function.__globals__:
            continue
        values.append(value)
    return values
