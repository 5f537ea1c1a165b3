"""How the model was validated, in which mode and with which inputs: passes without gradients between two steps.

The hook is global, sees nothing but calls of the watched model (or of its parts, where a program calls those), and
takes itself off when training goes on.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from steadyrun.probes.model_inputs import pooled, statistics
from steadyrun.program.torch_compat import Dropout

_MEASURED = 4  # passes of a validation whose inputs are looked at
_MOST_IN_VAIN = 20  # steps whose passes without gradients were part of training, before their inputs cost no more time


class EvaluationProbe:
    """Counts passes without gradients, and those in which modules behaved as in training."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._sensitive = [module for module in model.modules() if is_random_in_training(module)]
        self._members = {id(module) for module in model.modules()}
        self._handle: RemovableHandle | None = None
        self._first: nn.Module | None = None  # what was called first: a pass begins with it
        self._passes = self._in_training = 0
        self._inputs: list[Tensor] = []  # statistics of the passes since the last training step
        self._in_vain = 0

    def arm(self) -> None:
        """Training has made its step: what comes now may be validation."""
        self._inputs = []
        if self._handle is None:
            self._handle = register_module_forward_pre_hook(self._entered)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def take(self) -> dict[str, int]:
        """What was seen since the last validation; the next one begins anew."""
        counts = {"passes": self._passes, "passes_in_training": self._in_training, "sensitive": len(self._sensitive)}
        self._begin_anew()
        return counts

    def take_inputs(self, trained_with: int | None) -> dict[str, float]:
        """Statistics of what the model was given since the last step, if training calls the same module first."""
        taken, self._inputs = self._inputs, []
        return pooled(taken) if taken and trained_with == id(self._first) else {}

    def _begin_anew(self) -> None:
        self._first = None
        self._passes = self._in_training = 0

    def _entered(self, module: nn.Module, args: object) -> None:
        if id(module) not in self._members or torch.compiler.is_compiling():
            return
        if torch.is_grad_enabled():
            self.disarm()
            self._in_vain += bool(self._inputs)
            self._inputs = []
            if (
                self._first is not self._model
            ):  # a part that ran in a training step, such as a teacher, is no validation
                self._begin_anew()
            return
        if self._first is None or module is self._model:
            self._first = module
        if module is self._first:
            self._passes += 1
            self._in_training += any(layer.training for layer in self._sensitive)
            if len(self._inputs) < _MEASURED and self._in_vain < _MOST_IN_VAIN:
                self._measure(args)

    def _measure(self, args: object) -> None:
        """Nothing that goes wrong here may reach the pass: an input that cannot be measured is not tried again."""
        try:
            given = statistics(args)
        except Exception:
            given, self._in_vain = None, _MOST_IN_VAIN
        if given is not None:
            self._inputs.append(given)


def is_random_in_training(module: nn.Module) -> bool:
    """Whether a module does something else in training than in evaluation: dropout, batch statistics."""
    if isinstance(module, Dropout):
        return bool(module.p > 0)
    return isinstance(module, _BatchNorm)
