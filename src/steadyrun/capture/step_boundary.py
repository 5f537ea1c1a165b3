"""Notices the first training forward pass after each step: between two steps nothing is half done.

The hook is global and takes itself off when it has fired, so that the passes in between cost nothing; a hook on the
model would be copied and pickled along with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from steadyrun.program.torch_compat import ForwardPreHook


class Boundary:
    """Calls `crossed(args)` once after each `arm`, before the first module of the model runs with gradients."""

    def __init__(self, model: nn.Module, crossed: Callable[[Any], None]) -> None:
        self._modules = {id(module) for module in model.modules()}
        self._crossed = crossed
        self._hook = ForwardPreHook(self._entered)

    def arm(self) -> None:
        self._hook.put_on()

    def disarm(self) -> bool:
        """Take the hook off; whether it was still waiting."""
        return self._hook.take_off()

    def _entered(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or id(module) not in self._modules:
            return
        self.disarm()
        self._crossed(args)


class Again(BaseException):
    """Ends an execution at its boundary, before anything has changed: it is to begin once more. Nobody else sees it."""
