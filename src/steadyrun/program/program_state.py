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

from steadyrun.program.attributes import Attributes, SavedTensor, same
from steadyrun.program.model_parts import clean, unwrapped
from steadyrun.program.random_state import RandomState, kept_generators, put, take
from steadyrun.program.reachable_objects import Reached, reached
from steadyrun.program.task import Task
from steadyrun.program.torch_compat import scaler_stages


class ProgramState:
    """The state of a task at one moment."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._model = unwrapped(task.model)
        others = reached(task)
        tops = [self._model, *others.modules]
        modules = list({id(module): module for top in tops for module in top.modules()}.values())
        parameters = _parameters(self._model, others, [*task.optimizers, *others.optimizers])
        self.tensors = {clean(name): SavedTensor.of(tensor) for name, tensor in _tensors(self._model)}
        mine = {id(saved.tensor) for saved in self.tensors.values()}
        strange = [*parameters, *(buffer for top in others.modules for buffer in top.buffers())]
        self._strange = [SavedTensor.of(tensor) for tensor in strange if id(tensor) not in mine]
        self._gradients = [
            (parameter, None if parameter.grad is None else SavedTensor.of(parameter.grad)) for parameter in parameters
        ]
        self._needs = [(parameter, parameter.requires_grad) for parameter in parameters]
        self._modes = [(module, module.training) for module in modules]
        self._registers = [(register, dict(register)) for module in modules for register in _registers(module)]
        own = list(self._model.modules())
        self.own = _Machines(own, task.optimizers, [task.scheduler, task.scaler])
        known = {id(module) for module in own}
        strangers = [*(module for module in modules if id(module) not in known), *others.objects]
        self._others = _Machines(strangers, others.optimizers, others.stateful)
        self._generators = [(generator, _generator_state(generator)) for generator in others.generators]
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
            if _identities(register) != _identities(members):
                register.clear()
                register.update(members)
        for saved in self.tensors.values():
            saved.put_back()
        for parameter, needs_grad in self._needs:
            parameter.requires_grad_(needs_grad)
        self.own.put_back()

    def put_back_surroundings(self) -> None:
        """The rest: other networks of the program, gradients, modes, random generators."""
        inside = {id(tensor) for _, tensor in _tensors(self._model)}
        for saved in self._strange:
            if id(saved.tensor) not in inside:
                saved.put_back()
        for parameter, gradient in self._gradients:
            if gradient is not None:
                gradient.put_back()
            parameter.grad = None if gradient is None else gradient.tensor
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
        differences = [f"{name} changed" for name, saved in self.tensors.items() if not same(saved.tensor, saved.copy)]
        now = {clean(name): tensor for name, tensor in _tensors(self._model)}
        differences += [
            f"{name} is another tensor" for name, saved in self.tensors.items() if now.get(name) is not saved.tensor
        ]
        differences += [f"{name} is new" for name in now if name not in self.tensors]
        for module, training in self._modes:
            if module.training != training:
                differences.append(f"the mode of a {type(module).__name__} changed")
        return differences


@contextmanager
def untouched(task: Task) -> Iterator[ProgramState]:
    """Whatever the body does to the task is undone."""
    state = ProgramState(task)
    try:
        yield state
    finally:
        state.put_back()


class _Machines:
    """Optimizers, counters, and the plain attributes of all objects."""

    def __init__(self, objects: list[Any], optimizers: list[Any], counters: list[Any]) -> None:
        counters = [counter for counter in counters if counter is not None]
        self.attributes = Attributes([*objects, *optimizers, *counters])
        self._optimizers = [_Optimizer(optimizer) for optimizer in optimizers]
        self._counters = [(counter, state) for counter in counters if (state := _state_dict(counter))]

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
        states = self._state if isinstance(self._state, Mapping) else {}
        self._moments = [(parameter, state, _copied(state)) for parameter, state in states.items()]

    def put_back(self) -> None:
        self._list[:] = [saved_group.group for saved_group in self._groups]
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


def _identities(register: dict[str, Any]) -> list[tuple[str, int]]:
    return [(name, id(member)) for name, member in register.items()]


def _registers(module: nn.Module) -> list[dict[str, Any]]:
    return [module._parameters, module._buffers, module._modules]


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _parameters(model: nn.Module, others: Reached, optimizers: list[Any]) -> list[Tensor]:
    """Those of the modules and those of the optimizers, each once."""
    optimized = [
        parameter for optimizer in optimizers for group in optimizer.param_groups for parameter in group["params"]
    ]
    mine = [parameter for top in [model, *others.modules] for parameter in top.parameters()]
    return list({id(parameter): parameter for parameter in [*mine, *optimized]}.values())


def _state_dict(counter: Any) -> Any:
    state_dict = getattr(counter, "state_dict", None)
    with suppress(Exception):  # one that cannot be copied is left alone
        return copy.deepcopy(state_dict()) if callable(state_dict) else None
    return None


def _put_counter(counter: Any, state: Any) -> None:
    counter.load_state_dict(copy.deepcopy(state))
    stages = scaler_stages(counter)
    if stages is not None:
        stages.clear()


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: SavedTensor.of(value) if isinstance(value, Tensor) else copy.deepcopy(value)
        for key, value in state.items()
    }


def _put_copied(state: dict[str, Any], saved: dict[str, Any]) -> None:
    for key, value in saved.items():
        if isinstance(value, SavedTensor):
            value.put_back()
            state[key] = value.tensor
        else:
            state[key] = copy.deepcopy(value)


def _devices() -> list[int]:
    started: bool = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return list(range(torch.cuda.device_count())) if started else []


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if hasattr(generator, "bit_generator"):
        return copy.deepcopy(generator.bit_generator.state)
    return generator.get_state() if hasattr(generator, "get_state") else generator.getstate()


def _put_generator(generator: Any, state: Any) -> None:
    if hasattr(generator, "bit_generator"):
        generator.bit_generator.state = copy.deepcopy(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.setstate(state)
