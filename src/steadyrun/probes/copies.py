"""Copies of the model that a program keeps beside it: an average of its weights, a target network, a teacher."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn

from steadyrun.program.model_parts import unwrapped


class CopyFinder:
    """Knows a module that has the class and the shapes of the model, and is another one."""

    def __init__(self, model: nn.Module) -> None:
        self.model = unwrapped(model)
        self._members = {id(module) for module in model.modules()}
        self._kin: dict[int, bool] = {}  # modules of the model's class: whether they have its parameters
        self._last: weakref.ref[nn.Module] | None = None

    def look_at(self, module: nn.Module) -> bool:
        """Remember a copy that runs."""
        if type(module) is not type(self.model) or id(module) in self._members:
            return False
        if id(module) not in self._kin:
            self._kin[id(module)] = _shapes(module) == _shapes(self.model)
        if self._kin[id(module)]:
            self._last = weakref.ref(module)
        return self._kin[id(module)]

    def take(self) -> nn.Module | None:
        """The copy that ran last, if there was one since it was asked for."""
        last, self._last = self._last, None
        return None if last is None else last()


def copies(module: nn.Module, model: nn.Module) -> bool:
    """Whether a module has the class and the shapes of a model."""
    return type(module) is type(unwrapped(model)) and _shapes(module) == _shapes(unwrapped(model))


def inner_copies(model: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Frozen parts of a model beside the trained part of the same class and shapes, such as a target network."""
    parts = [part for part in model.children() if next(part.parameters(), None) is not None]
    frozen = [part for part in parts if not any(each.requires_grad for each in part.parameters())]
    trained = [part for part in parts if all(each.requires_grad for each in part.parameters())]
    return [(copy, part) for copy in frozen for part in trained if copies(copy, part) and _alike(copy, part)]


def _alike(copy: nn.Module, part: nn.Module) -> bool:
    """Whether a copy was made from the part as it is now: both have the same values."""
    return all(torch.equal(one, other) for one, other in zip(copy.parameters(), part.parameters(), strict=True))


def sizes(copy: nn.Module, model: nn.Module) -> Tensor:
    """How far a copy is from the model, how large it is, and how large the model: one tensor of three."""
    with torch.no_grad():
        pairs = [(one, other.to(one.device)) for one, other in zip(copy.parameters(), model.parameters(), strict=True)]
        sums = [
            torch.stack(
                [(one - other).double().square().sum(), one.double().square().sum(), other.double().square().sum()]
            )
            for one, other in pairs
        ]
        return torch.stack(sums).sum(0).sqrt() if sums else torch.zeros(3, dtype=torch.float64)


def _shapes(module: nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, parameter.shape) for name, parameter in module.named_parameters()]
