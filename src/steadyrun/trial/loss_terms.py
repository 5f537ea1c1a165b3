"""The terms of a loss that is a sum: observed as they are added, and switched off one at a time.

A term is a scalar that is added to another; a sum of terms is not a term.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from steadyrun.probes.loss_graph import LossGraph, read

_SUMS = frozenset(
    {
        *(torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__),
        *(torch.sub, Tensor.sub, Tensor.sub_, Tensor.__sub__, Tensor.__rsub__, Tensor.__isub__),
    }
)
MOST_TERMS = 8


class Terms(TorchFunctionMode):
    """Collects the terms of one loss in order; term number `off` gets no gradient."""

    def __init__(self, off: int | None = None) -> None:
        super().__init__()
        self.values: list[float] = []
        self._terms: list[Tensor] = []
        self._off = off
        self._sums: dict[int, Tensor] = {}  # kept alive, so that no id is reused meanwhile

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func not in _SUMS or not all(_is_number(value) for value in args if isinstance(value, Tensor)):
            return func(*args, **options)
        result = func(*map(self._operand, args), **options)
        if isinstance(result, Tensor):
            self._sums[id(result)] = result
        return result

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or id(value) in self._sums or len(self.values) >= MOST_TERMS:
            return value
        self.values.append(float(value.detach()))
        self._terms.append(value)
        return value.detach() if len(self.values) - 1 == self._off else value

    @property
    def compares(self) -> list[bool]:
        """Whether each term compares something with targets."""
        graphs = [read(term) if term.requires_grad else LossGraph() for term in self._terms]
        return [bool(graph.labels or graph.compared or graph.comparison) for graph in graphs]


def _is_number(tensor: Tensor) -> bool:
    return tensor.dim() == 0 and tensor.is_floating_point()
