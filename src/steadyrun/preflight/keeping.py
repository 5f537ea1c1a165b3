"""A training program as it was, put back bit for bit: parameters, buffers, gradients, moments, modes, random states.

Everything is put back in place: a scheduler, a scaler or the training loop may hold the very same objects.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.incidents.randomness import RandomState, put, take
from steadyrun.incidents.task import Task
from steadyrun.preflight.generators import kept_generators
from steadyrun.probes.blocks import clean, unwrapped

_PLAIN = (bool, int, float, str)


@dataclass
class _Held:
    """A tensor, where it was, and what was in it."""

    tensor: Tensor
    copy: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> _Held:
        return cls(tensor, tensor.detach().clone())

    def put_back(self) -> None:
        with torch.no_grad():
            if self.tensor.shape != self.copy.shape or not _same(self.tensor.detach(), self.copy):
                self.tensor.data.copy_(self.copy) if self.tensor.shape == self.copy.shape else self._resize()

    def _resize(self) -> None:
        self.tensor.data = self.copy.clone()


class Kept:
    """The state of a task at one moment."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._model = unwrapped(task.model)
        self._tensors = {clean(name): _Held.of(held) for name, held in _tensors(self._model)}
        self._gradients = {
            id(held): (held, None if held.grad is None else (held.grad, held.grad.detach().clone()))
            for held in _parameters(task)
        }
        self._needs = {id(held): (held, held.requires_grad) for held in _parameters(task)}
        self._modes = [(module, module.training, _numbers(module)) for module in self._model.modules()]
        self._groups = [
            (group, {key: copy.copy(value) for key, value in group.items() if key != "params"}, list(group["params"]))
            for optimizer in task.optimizers
            for group in optimizer.param_groups
        ]
        self._moments = [
            (optimizer, {held: _copied(state) for held, state in optimizer.state.items()})
            for optimizer in task.optimizers
        ]
        self._scheduler = copy.deepcopy(_state_dict(task.scheduler))
        self._scaler = copy.deepcopy(_state_dict(task.scaler))
        self._step = task.step
        self._generators = kept_generators(task.loader, task.val_loader)
        self.random: RandomState = take()

    def put_back(self) -> None:
        """Everything as it was."""
        for held in self._tensors.values():
            held.put_back()
        for parameter, wanted in self._needs.values():
            parameter.requires_grad_(wanted)
        for parameter, kept in self._gradients.values():
            if kept is not None:
                kept[0].copy_(kept[1])
            parameter.grad = None if kept is None else kept[0]
        for module, training, numbers in self._modes:
            module.training = training
            vars(module).update(numbers)
        for group, settings, members in self._groups:
            for key in [key for key in group if key != "params" and key not in settings]:
                del group[key]
            for key, value in settings.items():
                group[key] = copy.copy(value)
            group["params"][:] = members
        for optimizer, states in self._moments:
            _put_moments(optimizer, states)
        self._put_counters()
        self._task.step = self._step
        for put_generator_back in self._generators:
            put_generator_back()
        put(self.random)

    def differences(self) -> list[str]:
        """What is not as it was: nothing, after `put_back`."""
        found = [f"{name} changed" for name, held in self._tensors.items() if not _same(held.tensor, held.copy)]
        now = {clean(name): held for name, held in _tensors(self._model)}
        found += [
            f"{name} is another tensor" for name, held in self._tensors.items() if now.get(name) is not held.tensor
        ]
        found += [f"{name} is new" for name in now if name not in self._tensors]
        for module, training, _ in self._modes:
            if module.training != training:
                found.append(f"the mode of a {type(module).__name__} changed")
        return found

    def _put_counters(self) -> None:
        task = self._task
        if self._scheduler is not None:
            task.scheduler.load_state_dict(copy.deepcopy(self._scheduler))  # type: ignore[union-attr]
        if self._scaler:
            task.scaler.load_state_dict(copy.deepcopy(self._scaler))  # type: ignore[union-attr]
            stages = getattr(task.scaler, "_per_optimizer_states", None)
            if stages is not None:
                stages.clear()


@contextmanager
def untouched(task: Task) -> Iterator[Kept]:
    """Whatever the body does to the task is undone."""
    kept = Kept(task)
    try:
        yield kept
    finally:
        kept.put_back()


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _parameters(task: Task) -> list[Tensor]:
    """Those of the model and those of the optimizers, each once."""
    optimized = [held for each in task.optimizers for group in each.param_groups for held in group["params"]]
    return list({id(held): held for held in [*task.model.parameters(), *optimized]}.values())


def _numbers(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if type(value) in _PLAIN and name != "training"}


def _state_dict(held: Any) -> Any:
    give = getattr(held, "state_dict", None)
    return give() if callable(give) else None


def _copied(state: Any) -> dict[str, Any]:
    return {key: _Held.of(value) if isinstance(value, Tensor) else copy.deepcopy(value) for key, value in state.items()}


def _put_moments(optimizer: Any, states: dict[Any, dict[str, Any]]) -> None:
    for held in [held for held in optimizer.state if held not in states]:
        del optimizer.state[held]
    for held, saved in states.items():
        state = optimizer.state[held]
        for key in [key for key in state if key not in saved]:
            del state[key]
        for key, value in saved.items():
            if isinstance(value, _Held):
                value.put_back()
                state[key] = value.tensor
            else:
                state[key] = copy.deepcopy(value)


def _same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit; NaN is the same as NaN."""
    one = one.detach()
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.equal(one, other):
        return True
    return bool(
        one.is_floating_point()
        and torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.nan_to_num(), other.nan_to_num())
    )
