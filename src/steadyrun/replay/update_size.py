"""The first violent change of a parameter in a replayed window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from steadyrun.program.model_parts import clean
from steadyrun.program.packing import Packed
from steadyrun.program.torch_compat import foreach_norm, foreach_sub

VIOLENT = 10.0  # times the median change of the steps before
_ENOUGH = 5  # steps before, of which the median is taken


@dataclass(frozen=True)
class ParameterUpdate:
    """How far one step moved one parameter, relative to its size."""

    step: int
    parameter: str
    ratio: float
    typical: float

    @property
    def times(self) -> float:
        return self.ratio / self.typical if self.typical > 0 else float("inf")


class Changes:
    """Shown the parameters before and after every step."""

    def __init__(self) -> None:
        self._moves: dict[str, list[tuple[int, float, float]]] = {}  # step, how far, the size before

    def add(self, step: int, model: nn.Module, before: Packed) -> None:
        named = {clean(name): parameter for name, parameter in model.named_parameters()}
        for name, (moved, size) in _moves(named, before.tensors).items():
            self._moves.setdefault(name, []).append((step, moved, size))

    def first_violent(self) -> ParameterUpdate | None:
        """The earliest step at which a parameter moves ten times as far as it did, or is not finite any more.

        Of several parameters at that step the one that moved most, compared with its own past.
        """
        updates = [change for name, moves in self._moves.items() if (change := _first(name, moves)) is not None]
        return min(updates, key=lambda change: (change.step, -change.times), default=None)


def _moves(named: Mapping[str, nn.Parameter], before: Mapping[str, Tensor]) -> dict[str, tuple[float, float]]:
    names = [name for name in named if f"parameters.{name}" in before and named[name].numel()]
    now = [named[name].detach().float().cpu() for name in names]
    then = [before[f"parameters.{name}"].float() for name in names]
    if not names:
        return {}
    moved = foreach_norm(foreach_sub(now, then), 2, torch.float64)
    size = foreach_norm(then, 2, torch.float64)
    return {name: (float(m), float(s)) for name, m, s in zip(names, moved, size, strict=True)}


def _first(name: str, moves: list[tuple[int, float, float]]) -> ParameterUpdate | None:
    ratios = np.array([_ratio(moves, index) for index in range(len(moves))])
    for index, (step, _, _) in enumerate(moves):
        ratio = ratios[index]
        typical = float(np.median(ratios[:index])) if index >= _ENOUGH else float("nan")
        if not np.isfinite(ratio) or (typical > 0 and ratio > VIOLENT * typical):
            return ParameterUpdate(step, name, float(ratio), typical)
    return None


def _ratio(moves: list[tuple[int, float, float]], index: int) -> float:
    """How far a step moved it, relative to its size up to then: a bias that passes through zero is not small."""
    size = max(moves[index][2], float(np.median([size for _, _, size in moves[: index + 1]])))
    return moves[index][1] / size if size else moves[index][1]
