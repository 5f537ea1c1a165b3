"""Marks the phases of a training step: the first forward pass, the backward pass, the optimizer's step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from steadyrun.program.torch_compat import BACKWARD, ForwardPreHook, Wrapping, something_was_compiled


class PhaseHooks:
    """Calls `mark` with the name of each phase that begins; a few calls per step, which read a clock.

    The forward hook is global and takes itself off at the first pass with gradients, so that the passes of the other
    modules cost nothing. It refers to the modules by their ids and keeps nothing alive.
    """

    def __init__(self, model: nn.Module, mark: Callable[[str], None], *, compiled: bool) -> None:
        self._modules = {id(module) for module in model.modules()}
        self._mark = mark
        self._compiled = compiled
        self._forward = ForwardPreHook(self._entered)
        self._backward: Wrapping | None = None
        self._update: RemovableHandle | None = None
        self._thread = threading.get_ident()
        self._depth = 0  # checkpointing runs a backward pass within another
        self._validating = False

    @property
    def sees_forward(self) -> bool:
        """A global hook makes torch.compile warn, and a compiled model does not call it."""
        return not self._compiled and not something_was_compiled()

    def attach(self) -> None:
        self._backward = BACKWARD.wrap(self._around_backward)
        self._update = register_optimizer_step_pre_hook(self._update_begins)
        self.step_begins()

    def detach(self) -> None:
        self._forward.take_off()
        if self._backward is not None:
            self._backward.remove()
        if self._update is not None:
            self._update.remove()
        self._backward = self._update = None

    def validation_ended(self) -> None:
        self._validating = False

    def step_begins(self) -> None:
        """Wait for the first forward pass."""
        self._thread, self._validating = threading.get_ident(), False
        if self.sees_forward:
            self._forward.put_on()

    def _entered(self, module: nn.Module, _args: Any) -> None:
        if torch.compiler.is_compiling() or id(module) not in self._modules or self._elsewhere():
            return
        if torch.is_grad_enabled():
            self._forward.take_off()
            self._mark("forward")
        elif not self._validating:
            self._validating = True
            self._mark("validation")

    def _around_backward(self, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._depth or self._elsewhere():
            return call(*args, **options)
        self._mark("backward")
        self._depth += 1
        try:
            return call(*args, **options)
        finally:
            self._depth -= 1
            self._mark("backward-ended")
            self.step_begins()  # of the next micro-batch

    def _update_begins(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not torch.compiler.is_compiling() and not self._elsewhere():
            self._mark("update")

    def _elsewhere(self) -> bool:
        """Whether another thread calls: data loading and evaluation may run beside training."""
        return threading.get_ident() != self._thread
