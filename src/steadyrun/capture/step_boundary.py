"""Notices the first training forward pass after each step: the moment between two steps, when nothing is half done.

The hook is global and takes itself off when it has fired, so that the passes in between cost nothing; a hook on the
model would be copied and pickled along with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook


class Boundary:
    """Calls `crossed(args)` once after each `arm`, before the first module of the model runs with gradients."""

    def __init__(self, model: nn.Module, crossed: Callable[[Any], None]) -> None:
        self._modules = {id(module) for module in model.modules()}
        self._crossed = crossed
        self._handle: Any = None

    def arm(self) -> None:
        if self._handle is None:
            self._handle = register_module_forward_pre_hook(self._entered)

    def disarm(self) -> bool:
        """Take the hook off; whether it was still waiting."""
        waiting = self._handle is not None
        if waiting:
            self._handle.remove()
            self._handle = None
        return waiting

    def _entered(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or id(module) not in self._modules:
            return
        self.disarm()
        self._crossed(args)


class Again(BaseException):
    """Ends an execution at its boundary, before anything has changed: it is to begin once more. Nobody else sees it."""
