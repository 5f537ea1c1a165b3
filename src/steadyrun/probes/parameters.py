"""Per block: gradient norm, parameter norm, and how far one step moved the weights relative to their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from steadyrun.probes.gradients import SampledNorms
from steadyrun.probes.norms import norms
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values

if TYPE_CHECKING:
    from steadyrun.probes.optimizer_steps import OptimizerLike

_MOST_ELEMENTS = 65_536  # of a larger tensor, evenly spaced elements stand for the whole
_MOST_TOGETHER = 2**19  # of all tensors, unless they are hundreds: 2 MiB in float32
_FEWEST_ELEMENTS = 4_096


@dataclass(frozen=True)
class _Joined:
    """The elements of the parameters of one kind (device and type) at `indices`, one after the other."""

    indices: list[int]
    values: Tensor
    pushed: Tensor | None  # which of them have a gradient that is not zero


@dataclass
class ParameterProbe:
    """Follows the watched parameters, each of which belongs to one named group.

    The elements that are looked at are joined into one tensor per kind, so that a model of hundreds of tensors takes a
    handful of operations.
    """

    parameters: list[nn.Parameter]
    groups: list[str]
    adapters: list[int] = field(default_factory=list)  # indices of the adapters' parameters
    frozen: list[int] = field(default_factory=list)  # indices of the base's parameters beside adapters that are frozen
    _before: list[_Joined] = field(default_factory=list)
    _stepped: set[int] = field(default_factory=set)  # ids of the optimizers that stepped since the snapshot

    def snapshot(self, optimizer: OptimizerLike) -> None:
        """Keep (a part of) every parameter as it is before the optimizer steps, and where its gradient is not zero."""
        self._stepped.add(id(optimizer))
        if not self._before and self.parameters:
            parts = self._parts()
            self._before = [
                _Joined(indices, torch.cat([parts[index] for index in indices]), self._pushed(indices, parts))
                for indices in _by_kind(parts)
            ]

    def fill(self, row: ProbeRow, optimizers: Sequence[OptimizerLike]) -> None:
        """Parameter norms, and the update-to-weight ratio where a snapshot was taken."""
        sizes = norms(self.parameters)
        row.put_many(sizes, self._summed("block_param_norm", self.groups))
        if self.adapters:
            row.put("adapter_norm", torch.linalg.vector_norm(sizes[self.adapters]))
        if self.frozen:
            row.put("adapter_base_norm", torch.linalg.vector_norm(sizes[self.frozen]))
        if self._before:
            before, self._before = self._before, []
            parts = self._parts()
            after = [torch.cat([parts[index] for index in kind.indices]) for kind in before]
            row.put("stalled", _stalled(before, after))
            moved: dict[int, Tensor] = {}
            for kind, now in zip(before, after, strict=True):
                moves = torch.split(now - kind.values, [parts[index].numel() for index in kind.indices])
                moved |= dict(zip(kind.indices, norms(moves).unbind(), strict=True))
            shares = [parameter.numel() / part.numel() for parameter, part in zip(self.parameters, parts, strict=True)]
            steps = torch.stack([moved[index].to(sizes.device) for index in range(len(parts))])
            row.put_many(torch.stack([steps, sizes]), self._ratio(shares, self._waiting(optimizers)))
        self._stepped = set()

    def _waiting(self, optimizers: Sequence[OptimizerLike]) -> set[str]:
        """The groups whose turn this step was not: their optimizer did not step beside the others."""
        turns: dict[int, bool] = {}  # by parameter: whether an optimizer of it stepped
        for optimizer in optimizers:
            for parameter in (each for group in optimizer.param_groups for each in group["params"]):
                turns[id(parameter)] = turns.get(id(parameter), False) or id(optimizer) in self._stepped
        everything = zip(self.parameters, self.groups, strict=True)
        return set(self.groups) - {group for parameter, group in everything if turns.get(id(parameter), True)}

    @property
    def _most(self) -> int:
        return max(_FEWEST_ELEMENTS, min(_MOST_ELEMENTS, _MOST_TOGETHER // len(self.parameters)))

    def _parts(self) -> list[Tensor]:
        return [_part(parameter, self._most) for parameter in self.parameters]

    def _pushed(self, indices: list[int], parts: list[Tensor]) -> Tensor | None:
        """Which elements have a gradient that is not zero; None if no parameter has one."""
        gradients = [self.parameters[index].grad for index in indices]
        known = [None if each is None or each.is_sparse else _part(each, self._most) for each in gradients]
        if not any(part is not None for part in known):
            return None
        filled = [
            torch.zeros_like(parts[index]) if part is None else part for index, part in zip(indices, known, strict=True)
        ]
        return torch.cat(filled) != 0

    def fill_gradients(self, row: ProbeRow, sampled: SampledNorms) -> None:
        """Gradient norms per block, from the norms per parameter taken when backward ended."""
        groups = [self.groups[index] for index in sampled.indices]
        row.put_many(sampled.norms, self._summed("block_grad_norm", groups))

    def _summed(self, series: str, groups: list[str]) -> Unpack:
        def unpack(array: HostArray) -> Values:
            return {f"{series}/{name}": value for name, value in _root_sum(groups, array).items()}

        return unpack

    def _ratio(self, shares: list[float], waiting: set[str]) -> Unpack:
        def unpack(array: HostArray) -> Values:
            # A tensor of which one element in n was looked at has moved about sqrt(n) times as far as those did.
            moved, size = array.reshape(2, -1)
            steps = _root_sum(self.groups, moved * np.sqrt(shares))
            sizes = _root_sum(self.groups, size)
            moving = [name for name in steps if sizes[name] != 0 and name not in waiting]
            return {f"update_ratio/{name}": steps[name] / sizes[name] for name in moving}

        return unpack


def _root_sum(groups: list[str], values: HostArray) -> dict[str, float]:
    """The norm of each group from the norms of its members."""
    totals: dict[str, float] = {}
    with np.errstate(over="ignore"):
        squares = np.square(values.astype(np.float64))
    for group, square in zip(groups, squares, strict=True):
        totals[group] = totals.get(group, 0.0) + float(square)
    return {group: total**0.5 for group, total in totals.items()}


def _part(parameter: Tensor, most: int) -> Tensor:
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # a DTensor's own shard
    flat = local.detach().reshape(-1)
    return flat[:: -(-flat.numel() // most)] if flat.numel() > most else flat


def _by_kind(parts: list[Tensor]) -> list[list[int]]:
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, part in enumerate(parts):
        kinds.setdefault((part.device, part.dtype), []).append(index)
    return list(kinds.values())


def _stalled(before: list[_Joined], after: list[Tensor]) -> Tensor | None:
    """Of the elements with a gradient, the fraction that the step has not changed at all."""
    device = after[0].device
    counts = [
        torch.stack([(kind.pushed & (kind.values == now)).sum(), kind.pushed.sum()]).to(device)
        for kind, now in zip(before, after, strict=True)
        if kind.pushed is not None
    ]
    if not counts:
        return None
    total = torch.stack(counts).sum(0).float()
    return total[0] / total[1].clamp(min=1)
