"""Which predictions a model can make at all, read off the graph: a sigmoid, a ReLU or a softmax bounds its outputs.

A bounded operation counts if nothing but other views and one scale and offset lie between it and the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steadyrun.probes.attention import VIEWS
from steadyrun.program.torch_compat import saved

_PASSED = (*VIEWS, "Slice", "Select", "Index", "Copy", "Permute", "Mul", "Div", "Add", "Sub", "Rsub", "Neg")
_FIXED = {"Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Relu": (0.0, math.inf), "Softmax": (0.0, 1.0)}
_FIXED |= {"Softplus": (0.0, math.inf), "Exp": (0.0, math.inf)}
_CLAMPS = {"Clamp": ("min", "max"), "Hardtanh": ("min_val", "max_val")}
_FARTHEST = 20
_EXACT = 1e-4  # of the largest prediction: rounding


@dataclass(frozen=True)
class Bounds:
    """The range of predictions; `sums_to_one` if each row of them adds up to 1."""

    low: float
    high: float
    sums_to_one: bool = False


def bounds(predictions: Tensor, source: Any) -> Bounds | None:
    """The bounds of predictions that `source` computed; None if nothing bounds them, as far as is known."""
    node, straight = source, True
    for _ in range(_FARTHEST):
        if node is None:
            return None
        name = node.name()
        if (limits := _limits(name, node)) is not None:
            values = _values(name, node, limits)
            return None if values is None else _scaled(predictions, values, limits, straight, name)
        inputs = [below for below, _ in node.next_functions if below is not None]
        if not name.startswith(_PASSED) or len(inputs) != 1:
            return None
        straight = straight and name.startswith(VIEWS)
        node = inputs[0]
    return None


def _limits(name: str, node: Any) -> tuple[float, float] | None:
    for kind, limits in _FIXED.items():
        if name.startswith(kind):
            return limits
    for kind, (low, high) in _CLAMPS.items():
        if name.startswith(kind):
            given = [saved(node, low), saved(node, high)]
            if any(isinstance(each, Tensor) for each in given):
                return None
            return tuple(  # type: ignore[return-value]
                end if each is None else float(each) for each, end in zip(given, (-math.inf, math.inf), strict=True)
            )
    return None


def _values(name: str, node: Any, limits: tuple[float, float]) -> Tensor | None:
    result = saved(node, "result")
    if isinstance(result, Tensor):
        return result.detach()
    given = saved(node, "self")
    if not isinstance(given, Tensor):
        return None
    return (
        torch.nn.functional.softplus(given.detach()) if name.startswith("Softplus") else given.detach().clamp(*limits)
    )


def _scaled(
    predictions: Tensor, values: Tensor, limits: tuple[float, float], straight: bool, name: str
) -> Bounds | None:
    """The limits after one scale and offset, which the values themselves show."""
    if predictions.numel() != values.numel() or not values.numel():
        return None
    low, high = limits
    if straight:
        rows = name.startswith("Softmax") and values.shape == predictions.shape and _is_last(values)
        return Bounds(low, high, sums_to_one=rows)
    y, x = predictions.detach().double().flatten(), values.double().flatten()
    spread = x - x.mean()
    if not bool(spread.square().sum() > 0):
        return None
    slope = float((spread * y).sum() / spread.square().sum())
    offset = float(y.mean()) - slope * float(x.mean())
    if float((slope * x + offset - y).abs().max()) > _EXACT * float(y.abs().max()) or slope == 0:
        return None
    ends = sorted((slope * low + offset, slope * high + offset))
    return Bounds(ends[0], ends[1])


def _is_last(values: Tensor) -> bool:
    return bool(((values.float().sum(-1) - 1).abs() < 1e-2).all())


Loss = Callable[[Tensor, Tensor], Tensor]


def out_of_reach(targets: Tensor, found: Bounds, kind: str, loss: Loss, guess: Tensor) -> Tensor:
    """The part of what a model could learn that its bounds keep from it: 0 is nothing, 1 leaves a guess."""
    ideal, free = _ideal(targets, kind)
    best = ideal.clamp(found.low, found.high)
    if found.sums_to_one and kind != "logits":
        total = targets.sum(-1, keepdim=True)
        best = torch.where(total > 0, targets / total.clamp(min=1e-6), 1 / targets.shape[-1])
    lowest = loss(free, targets)
    return (loss(best, targets) - lowest) / (guess - lowest)


def _ideal(targets: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """What would fit the targets best, where nothing bounds it."""
    if kind == "logits":
        best = torch.logit(targets, eps=1e-6)
        return best, best
    return targets, targets
