"""The discriminating re-run: the same step in float32. What works there was an overflow; what fails is structural."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.task import Task
from steadyrun.program.torch_compat import no_autocast

_SMALL = (torch.float16, torch.bfloat16)


@contextmanager
def fp32(task: Task) -> Iterator[None]:
    """Inside, autocast is off whoever enters it, and the task's small floats are float32.

    Afterwards the parameters, their gradients, the buffers and the optimizers' state are as they were, bit by bit and
    in the same objects. What an executed step changes besides (schedule, scaler, RNG) is the caller's to restore.
    """
    with ExitStack() as stack:
        for optimizer in task.optimizers:
            stack.enter_context(_kept_state(optimizer))
        for tensor in _tensors(task):
            stack.enter_context(_widened(tensor))
        stack.enter_context(no_autocast())
        yield


def as_float32(batch: Any) -> Any:
    """A batch whose half and bfloat16 tensors are float32; everything else is the same object."""
    if isinstance(batch, Tensor):
        return batch.float() if batch.dtype in _SMALL else batch
    if isinstance(batch, Mapping):
        items = {key: as_float32(value) for key, value in batch.items()}
        return items if type(batch) is dict else _rebuilt(batch, items)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(as_float32, batch))
    return type(batch)(map(as_float32, batch)) if isinstance(batch, list | tuple) else batch


def _rebuilt(batch: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    try:
        return type(batch)(items)  # type: ignore[call-arg]
    except Exception:  # a mapping that is made in another way
        return items


@contextmanager
def _kept_state(optimizer: Any) -> Iterator[None]:
    """What a step adds to or replaces in the optimizer's state is taken back."""
    state = getattr(optimizer, "state", {})
    kept = {key: dict(value) if isinstance(value, dict) else value for key, value in state.items()}
    try:
        yield
    finally:
        for key in [each for each in state if each not in kept]:
            del state[key]
        for key, held in kept.items():
            if isinstance(held, dict):
                state[key].clear()
                state[key].update(held)
            else:
                state[key] = held


@contextmanager
def _widened(tensor: Tensor) -> Iterator[None]:
    """Float32 values behind the same tensor object; what is wide already is remembered on the host."""
    held, gradient = tensor.data, tensor.grad if tensor.is_leaf else None
    small = held.dtype in _SMALL
    copy = None if small else held.to("cpu", copy=True)
    if small:
        tensor.grad = None
        tensor.data = held.float()
    if gradient is not None:
        tensor.grad = gradient.float() if small else gradient.clone()
    try:
        yield
    finally:
        tensor.grad = None
        tensor.data = held
        if copy is not None:
            tensor.data.copy_(copy)
        tensor.grad = gradient


def _tensors(task: Task) -> list[Tensor]:
    """Parameters, buffers and optimizer state that a step may change, each once."""
    found: dict[int, Tensor] = {}
    owned = [group["params"] for each in task.optimizers for group in getattr(each, "param_groups", [])]
    for each in [*task.model.parameters(), *task.model.buffers(), *(one for group in owned for one in group)]:
        found[id(each)] = each
    for optimizer in task.optimizers:
        for state in getattr(optimizer, "state", {}).values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, Tensor):
                    found[id(value)] = value
    return list(found.values())
