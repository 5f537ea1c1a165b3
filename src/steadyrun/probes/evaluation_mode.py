"""How the model was validated, in which mode and with which inputs: passes without gradients between two steps.

The hook is global, sees nothing but calls of the watched model (or of its parts, where a program calls those) and of
copies of it, such as an average of its weights, and takes itself off when training goes on.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from steadyrun.probes.copies import CopyFinder, sizes
from steadyrun.probes.model_inputs import pooled, statistics
from steadyrun.probes.pass_calls import PassCalls, tensors_in
from steadyrun.program.torch_compat import Dropout, ForwardPreHook, is_spread, remove_hook

_MEASURED = 4  # passes of a validation whose inputs are looked at
_MOST_IN_VAIN = 20  # steps whose passes without gradients were part of training, before their inputs cost no more time


class EvaluationProbe:
    """Counts passes without gradients, and those in which modules behaved as in training."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._sensitive = [module for module in model.modules() if is_random_in_training(module)]
        self._members = {id(module) for module in model.modules()}
        self._owners = {id(m) for m in model.modules() if next(m.parameters(recurse=False), None) is not None}
        self.calls = PassCalls()  # since the last training step
        self._given: RemovableHandle | None = None  # sees what the first pass is given, by keyword as well
        self._hook = ForwardPreHook(self._entered)
        self._first: nn.Module | None = None  # what was called first: a pass begins with it
        self._passes = self._in_training = 0
        self.copies = CopyFinder(model)
        self._copy: weakref.ref[nn.Module] | None = None  # the copy that ran in this validation
        self._inputs: list[Tensor] = []  # statistics of the passes since the last training step
        self._in_vain = 0

    def arm(self) -> None:
        """Training has made its step: what comes now may be validation."""
        if self._inputs:
            self._inputs = []
        if self.calls.calls:
            self.calls = PassCalls()
        self._hook.put_on()

    def disarm(self) -> None:
        self._hook.take_off()
        self._stop_looking()

    def take(self) -> dict[str, float]:
        """What was seen since the last validation; the next one begins anew."""
        counts: dict[str, float] = {"passes": self._passes, "passes_in_training": self._in_training}
        counts["sensitive"] = len(self._sensitive)
        copy = None if self._copy is None else self._copy()
        if copy is not None and not any(map(is_spread, copy.parameters())):
            counts |= compared(copy, self.copies.model)
        self._begin_anew()
        return counts

    def take_inputs(self, trained_with: int | None) -> dict[str, float]:
        """Statistics of what the model was given since the last step, if training calls the same module first."""
        taken, self._inputs = self._inputs, []
        return pooled(taken) if taken and trained_with == id(self._first) else {}

    def _begin_anew(self) -> None:
        self._first = self._copy = None
        self._passes = self._in_training = 0

    def _entered(self, module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling():
            return
        if id(module) not in self._members:
            if not torch.is_grad_enabled() and self.copies.look_at(module):
                self._copy = weakref.ref(module)
            return
        if torch.is_grad_enabled():
            self.disarm()
            if self._inputs:
                self._in_vain += 1
                self._inputs = []
            if self.calls.calls or self.calls.given is not None:
                self.calls = PassCalls()
            if (
                self._first is not self._model
            ):  # a part that ran in a training step, such as a teacher, does not count as validation
                self._begin_anew()
            return
        if self._first is None or module is self._model:
            self._first = module
        if id(module) in self._owners:
            self.calls.calls[id(module)] += 1
        if module is self._model and self._given is None and self.calls.given is None:
            self._given = register_module_forward_hook(self._left, with_kwargs=True)
        if module is self._first:
            self._passes += 1
            self._in_training += any(layer.training for layer in self._sensitive)
            if len(self._inputs) < _MEASURED and self._in_vain < _MOST_IN_VAIN:
                self._measure(args)

    def _left(self, module: nn.Module, args: object, kwargs: object, _output: object) -> None:
        """Nothing that goes wrong here may reach the pass."""
        if module is self._model:
            with suppress(Exception):
                self.calls.given = tensors_in(args, kwargs)
            self._stop_looking()

    def _stop_looking(self) -> None:
        if self._given is not None:
            remove_hook(self._given)
            self._given = None

    def _measure(self, args: object) -> None:
        """Nothing that goes wrong here may reach the pass: an input that cannot be measured is not tried again."""
        try:
            given = statistics(args)
        except Exception:
            given, self._in_vain = None, _MOST_IN_VAIN
        if given is not None:
            self._inputs.append(given)


def compared(copy: nn.Module, model: nn.Module) -> dict[str, float]:
    """How far a copy is from the model, how large both are, and how many of its running statistics never moved."""
    apart, size, of_model = sizes(copy, model).tolist()
    with torch.no_grad():
        still = sum(bool(is_initial(part.running_mean, part.running_var)) for part in _statistics(copy))
        moved = sum(not is_initial(part.running_mean, part.running_var) for part in _statistics(model))
    facts = {"copy_distance": apart / of_model if of_model else 0.0, "copy_size": size, "size": of_model}
    return facts | {"copy_untouched": float(min(still, moved))}


def _statistics(module: nn.Module) -> list[Any]:
    return [part for part in module.modules() if isinstance(part, _NormBase) and part.running_mean is not None]


def is_initial(mean: Tensor, variance: Tensor | None) -> Tensor:
    """Whether running statistics are as torch makes them: nothing was ever added to them."""
    with torch.no_grad():
        still = (mean == 0).all()
        return still if variance is None else still & (variance == 1).all()


def is_random_in_training(module: nn.Module) -> bool:
    """Whether a module does something else in training than in evaluation: dropout, batch statistics."""
    if isinstance(module, Dropout):
        return bool(module.p > 0)
    return isinstance(module, _BatchNorm)
