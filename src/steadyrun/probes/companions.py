"""Modules that a loss function keeps beside the model (a teacher, a reference, an average), and what they do in a step.

They are found on the function itself: its attributes, its closure, the arguments of a partial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from steadyrun.probes.evaluation_mode import is_random_in_training
from steadyrun.probes.float_tensors import first_float
from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.program.torch_compat import remove_hook

_MOST = 4
_MOST_ITEMS = 2**20  # elements of an output that is kept until the step ends


def find_companions(loss_fn: object, model: nn.Module) -> dict[str, nn.Module]:
    """By name: modules with parameters that the function can reach and the model does not have."""
    members = {id(module) for module in model.modules()}
    own = {id(parameter) for parameter in model.parameters()}
    found: dict[str, nn.Module] = {}
    for name, value in _reached(loss_fn):
        if not isinstance(value, nn.Module) or id(value) in members or any(value is known for known in found.values()):
            continue
        parameters = list(value.parameters())
        if parameters and not any(id(parameter) in own for parameter in parameters) and len(found) < _MOST:
            found[name] = value
    return found


def _reached(function: object) -> Iterator[tuple[str, object]]:
    if isinstance(function, partial):
        yield from _reached(function.func)
        yield from ((str(index), value) for index, value in enumerate(function.args))
        yield from function.keywords.items()
    owner = getattr(function, "__self__", None)
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is not None and cells:
        yield from (
            (name, cell.cell_contents) for name, cell in zip(code.co_freevars, cells, strict=True) if _full(cell)
        )
    if isinstance(function, nn.Module):
        yield from function.named_children()
    for holder in (owner, function):
        if holder is not None and not isinstance(holder, nn.Module | type):
            yield from getattr(holder, "__dict__", {}).items()


def _full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not filled yet
        return False


class CompanionProbe:
    """Sees the companions run in a sampled step: in which mode, with which output."""

    def __init__(self, companions: Mapping[str, nn.Module], optimizers: Callable[[], list[OptimizerLike]]) -> None:
        self.companions, self._optimizers = dict(companions), optimizers
        self._handles: list[RemovableHandle] = []
        self._ran: dict[str, dict[str, object]] = {}
        self.outputs: list[Tensor] = []  # of companions, until the step ends

    def arm(self) -> None:
        """Look at the passes of the coming step."""
        self.disarm()
        self._ran, self.outputs = {}, []
        for name, module in self.companions.items():

            def left(module: nn.Module, _args: object, output: object, name: str = name) -> None:
                self._left(name, module, output)

            self._handles.append(module.register_forward_hook(left))

    def disarm(self) -> None:
        for handle in self._handles:
            remove_hook(handle)
        self._handles = []

    def take(self) -> dict[str, object]:
        """The facts of the step: what ran, whether it is random, differentiated or optimized."""
        self.disarm()
        ran, self._ran = self._ran, {}
        held = {id(each) for one in self._optimizers() for group in one.param_groups for each in group["params"]}
        for name, facts in ran.items():
            facts["optimized"] = sum(id(each) in held for each in self.companions[name].parameters())
        return dict(ran)

    def _left(self, name: str, module: nn.Module, output: object) -> None:
        given = first_float(output)
        if torch.compiler.is_compiling() or given is None:
            return
        random = any(part.training and is_random_in_training(part) for part in module.modules())
        self._ran[name] = {"class": type(module).__name__, "random": random, "differentiated": given.requires_grad}
        if given.numel() <= _MOST_ITEMS:
            self.outputs.append(given.detach())
