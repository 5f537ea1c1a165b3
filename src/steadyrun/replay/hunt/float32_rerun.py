"""The step repeated in float32: if it works there, the dtype overflowed; if it fails, the cause is structural."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.containers import rebuilt
from steadyrun.program.task import Task
from steadyrun.program.torch_compat import no_autocast

_SMALL = (torch.float16, torch.bfloat16)


@contextmanager
def fp32(task: Task) -> Iterator[None]:
    """Run the task in float32: autocast is off and narrow floats are float32 within this context.

    Afterwards the parameters, their gradients, the buffers and the optimizers' state are restored bit for bit, in the
    same objects. The caller restores what a step changes besides (schedule, scaler, RNG).
    """
    with ExitStack() as stack:
        for optimizer in task.optimizers:
            stack.enter_context(_kept_state(optimizer))
        for tensor in _tensors(task):
            stack.enter_context(_widened(tensor))
        stack.enter_context(no_autocast())
        yield


def as_float32(batch: Any) -> Any:
    """The batch with its float16 and bfloat16 tensors as float32; everything else is the same object."""
    return rebuilt(batch, lambda leaf: leaf.float() if getattr(leaf, "dtype", None) in _SMALL else leaf)


@contextmanager
def _kept_state(optimizer: Any) -> Iterator[None]:
    """Undo what a step adds to or replaces in the optimizer's state."""
    state = getattr(optimizer, "state", {})
    kept = {key: dict(value) if isinstance(value, dict) else value for key, value in state.items()}
    try:
        yield
    finally:
        for key in [added for added in state if added not in kept]:
            del state[key]
        for key, old in kept.items():
            if isinstance(old, dict):
                state[key].clear()
                state[key].update(old)
            else:
                state[key] = old


@contextmanager
def _widened(tensor: Tensor) -> Iterator[None]:
    """Put float32 values behind the same tensor objects; wider tensors are saved on the host."""
    data, gradient = tensor.data, tensor.grad if tensor.is_leaf else None
    small = data.dtype in _SMALL
    copy = None if small else data.to("cpu", copy=True)
    if small:
        tensor.grad = None
        tensor.data = data.float()
    if gradient is not None:
        tensor.grad = gradient.float() if small else gradient.clone()
    try:
        yield
    finally:
        tensor.grad = None
        tensor.data = data
        if copy is not None:
            tensor.data.copy_(copy)
        tensor.grad = gradient


def _tensors(task: Task) -> list[Tensor]:
    """The parameters, buffers and optimizer state that a step may change, each once."""
    tensors: dict[int, Tensor] = {}
    owned = [group["params"] for optimizer in task.optimizers for group in getattr(optimizer, "param_groups", [])]
    for tensor in [
        *task.model.parameters(),
        *task.model.buffers(),
        *(parameter for group in owned for parameter in group),
    ]:
        tensors[id(tensor)] = tensor
    for optimizer in task.optimizers:
        for state in getattr(optimizer, "state", {}).values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, Tensor):
                    tensors[id(value)] = value
    return list(tensors.values())
