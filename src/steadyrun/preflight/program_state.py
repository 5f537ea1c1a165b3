"""A training program as it was, put back bit for bit: parameters, buffers, gradients, moments, modes, random states.

Everything is put back in place: a scheduler, a scaler or the training loop may hold the very same objects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.program.attributes import Attributes, Held, same
from steadyrun.program.generators import kept_generators
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.program.random_state import RandomState, put, take
from steadyrun.program.reachable_objects import Reached, reached
from steadyrun.program.task import Task


class ProgramState:
    """The state of a task at one moment."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._model = unwrapped(task.model)
        others = reached(task)
        modules = list({id(each): each for top in [self._model, *others.modules] for each in top.modules()}.values())
        parameters = _parameters(self._model, others, [*task.optimizers, *others.optimizers])
        self.tensors = {clean(name): Held.of(held) for name, held in _tensors(self._model)}
        mine = {id(held.tensor) for held in self.tensors.values()}
        strange = [*parameters, *(held for top in others.modules for held in top.buffers())]
        self._strange = [Held.of(held) for held in strange if id(held) not in mine]
        self._gradients = [(held, None if held.grad is None else Held.of(held.grad)) for held in parameters]
        self._needs = [(held, held.requires_grad) for held in parameters]
        self._modes = [(module, module.training) for module in modules]
        self._registers = [(held, dict(held)) for module in modules for held in _registers(module)]
        own = list(self._model.modules())
        self.own = _Machines(own, task.optimizers, [task.scheduler, task.scaler])
        known = {id(each) for each in own}
        strangers = [*(each for each in modules if id(each) not in known), *others.objects]
        self._others = _Machines(strangers, others.optimizers, others.stateful)
        self._generators = [(held, _generator_state(held)) for held in others.generators]
        self._step = task.step
        self._loaders = kept_generators(task.loader, task.val_loader)
        self.random: RandomState = take(devices=_devices())

    def put_back(self) -> None:
        """Everything as it was."""
        self.put_back_own()
        self.put_back_surroundings()

    def put_back_own(self) -> None:
        """What the state_dicts of the task's objects are about: the model, its optimizers, scheduler and scaler."""
        for register, members in self._registers:  # a forward pass may put other tensors into the places of the first
            if [(name, id(each)) for name, each in register.items()] != [(n, id(each)) for n, each in members.items()]:
                register.clear()
                register.update(members)
        for held in self.tensors.values():
            held.put_back()
        for parameter, wanted in self._needs:
            parameter.requires_grad_(wanted)
        self.own.put_back()

    def put_back_surroundings(self) -> None:
        """The rest: other networks of the program, gradients, modes, random generators."""
        inside = {id(held) for _, held in _tensors(self._model)}
        for held in self._strange:
            if id(held.tensor) not in inside:
                held.put_back()
        for parameter, kept in self._gradients:
            if kept is not None:
                kept.put_back()
            parameter.grad = None if kept is None else kept.tensor
        for module, training in self._modes:
            module.training = training
        self._others.put_back()
        for generator, state in self._generators:
            _put_generator(generator, state)
        self._task.step = self._step
        for put_generator_back in self._loaders:
            put_generator_back()
        put(self.random)

    def differences(self) -> list[str]:
        """What is not as it was: nothing, after `put_back`."""
        found = [f"{name} changed" for name, held in self.tensors.items() if not same(held.tensor, held.copy)]
        now = {clean(name): held for name, held in _tensors(self._model)}
        found += [
            f"{name} is another tensor" for name, held in self.tensors.items() if now.get(name) is not held.tensor
        ]
        found += [f"{name} is new" for name in now if name not in self.tensors]
        for module, training in self._modes:
            if module.training != training:
                found.append(f"the mode of a {type(module).__name__} changed")
        return found


@contextmanager
def untouched(task: Task) -> Iterator[ProgramState]:
    """Whatever the body does to the task is undone."""
    kept = ProgramState(task)
    try:
        yield kept
    finally:
        kept.put_back()


class _Machines:
    """Optimizers, counters, and the plain attributes of all objects."""

    def __init__(self, objects: list[Any], optimizers: list[Any], counters: list[Any]) -> None:
        counters = [held for held in counters if held is not None]
        self.attributes = Attributes([*objects, *optimizers, *counters])
        self._optimizers = [_Optimizer(each) for each in optimizers]
        self._counters = [(held, state) for held in counters if (state := _state_dict(held))]

    def put_back(self) -> None:
        for counter, state in self._counters:
            _put_counter(counter, state)
        self.attributes.put_back()
        for optimizer in self._optimizers:
            optimizer.put_back()


class _Optimizer:
    """Groups and moments of an optimizer; `load_state_dict` gives it other containers, these are the first ones."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._list = optimizer.param_groups
        self._groups = [_Group.of(group) for group in optimizer.param_groups]
        self._state = getattr(optimizer, "state", None)
        held = self._state if isinstance(self._state, Mapping) else {}
        self._moments = [(parameter, state, _copied(state)) for parameter, state in held.items()]

    def put_back(self) -> None:
        self._list[:] = [each.group for each in self._groups]
        for group in self._groups:
            group.put_back()
        if self._optimizer.param_groups is not self._list:
            self._optimizer.param_groups = self._list
        if not isinstance(self._state, dict):
            return
        if self._optimizer.state is not self._state:
            self._optimizer.state = self._state
        self._state.clear()
        for parameter, state, saved in self._moments:
            state.clear()
            _put_copied(state, saved)
            self._state[parameter] = state


@dataclass
class _Group:
    """A param group: its settings (a learning rate may be a tensor) and its members."""

    group: dict[str, Any]
    settings: dict[str, Any]
    members: list[Tensor]

    @classmethod
    def of(cls, group: dict[str, Any]) -> _Group:
        settings = {key: value for key, value in group.items() if key != "params"}
        return cls(group, _copied(settings), list(group["params"]))

    def put_back(self) -> None:
        for key in [key for key in self.group if key != "params" and key not in self.settings]:
            del self.group[key]
        _put_copied(self.group, self.settings)
        self.group["params"][:] = self.members


def _registers(module: nn.Module) -> list[dict[str, Any]]:
    return [module._parameters, module._buffers, module._modules]


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _parameters(model: nn.Module, others: Reached, optimizers: list[Any]) -> list[Tensor]:
    """Those of the modules and those of the optimizers, each once."""
    optimized = [held for each in optimizers for group in each.param_groups for held in group["params"]]
    mine = [held for top in [model, *others.modules] for held in top.parameters()]
    return list({id(held): held for held in [*mine, *optimized]}.values())


def _state_dict(held: Any) -> Any:
    give = getattr(held, "state_dict", None)
    with suppress(Exception):  # one that cannot be copied is left alone
        return copy.deepcopy(give()) if callable(give) else None
    return None


def _put_counter(held: Any, state: Any) -> None:
    held.load_state_dict(copy.deepcopy(state))
    stages = getattr(held, "_per_optimizer_states", None)
    if stages is not None:
        stages.clear()


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    return {key: Held.of(value) if isinstance(value, Tensor) else copy.deepcopy(value) for key, value in state.items()}


def _put_copied(state: dict[str, Any], saved: dict[str, Any]) -> None:
    for key, value in saved.items():
        if isinstance(value, Held):
            value.put_back()
            state[key] = value.tensor
        else:
            state[key] = copy.deepcopy(value)


def _devices() -> list[int]:
    started: bool = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if started else []


def _generator_state(held: Any) -> Any:
    if isinstance(held, torch.Generator):
        return held.get_state()
    if hasattr(held, "bit_generator"):
        return copy.deepcopy(held.bit_generator.state)
    return held.get_state() if hasattr(held, "get_state") else held.getstate()


def _put_generator(held: Any, state: Any) -> None:
    if hasattr(held, "bit_generator"):
        held.bit_generator.state = copy.deepcopy(state)
    elif hasattr(held, "set_state"):
        held.set_state(state)
    else:
        held.setstate(state)
