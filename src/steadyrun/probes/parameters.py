"""Per block: gradient norm, parameter norm, and how far one step moved the weights relative to their size."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from steadyrun.probes.gradients import SampledNorms
from steadyrun.probes.norms import norms
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values
from steadyrun.program.torch_compat import foreach_sub

_MOST_ELEMENTS = 65_536  # of a larger tensor, evenly spaced elements stand for the whole


@dataclass
class ParameterProbe:
    """Follows the watched parameters, each of which belongs to one named group."""

    parameters: list[nn.Parameter]
    groups: list[str]
    _before: list[Tensor] = field(default_factory=list)
    _pushed: list[Tensor | None] = field(default_factory=list)  # which elements have a gradient that is not zero

    def snapshot(self) -> None:
        """Keep (a part of) every parameter as it is before the optimizer steps."""
        if not self._before:
            self._before = [_part(parameter).clone() for parameter in self.parameters]
            self._pushed = [None if p.grad is None or p.grad.is_sparse else _part(p.grad) != 0 for p in self.parameters]

    def forget(self) -> None:
        self._before, self._pushed = [], []

    def fill(self, row: ProbeRow) -> None:
        """Parameter norms, and the update-to-weight ratio where a snapshot was taken."""
        sizes = norms(self.parameters)
        row.put_many(sizes, self._summed("block_param_norm", self.groups))
        if self._before:
            before, self._before = self._before, []
            parts = [_part(parameter) for parameter in self.parameters]
            row.put("stalled", self._stalled(before, parts))
            moved = norms(foreach_sub(parts, before))
            shares = [parameter.numel() / part.numel() for parameter, part in zip(self.parameters, parts, strict=True)]
            row.put_many(torch.stack([moved, sizes]), self._ratio(shares))

    def _stalled(self, before: list[Tensor], parts: list[Tensor]) -> Tensor | None:
        """Of the elements with a gradient, the share that the step has not changed at all."""
        pushed, self._pushed = self._pushed, []
        counts = [
            torch.stack([(mask & (old == new)).sum(), mask.sum()])
            for mask, old, new in zip(pushed, before, parts, strict=False)
            if mask is not None and mask.shape == new.shape
        ]
        if not counts:
            return None
        total = torch.stack([count.to(counts[0].device) for count in counts]).sum(0).float()
        return total[0] / total[1].clamp(min=1)

    def fill_gradients(self, row: ProbeRow, sampled: SampledNorms) -> None:
        """Gradient norms per block, from the norms per parameter taken when backward ended."""
        groups = [self.groups[index] for index in sampled.indices]
        row.put_many(sampled.norms, self._summed("block_grad_norm", groups))

    def _summed(self, series: str, groups: list[str]) -> Unpack:
        def unpack(array: HostArray) -> Values:
            return {f"{series}/{name}": value for name, value in _root_sum(groups, array).items()}

        return unpack

    def _ratio(self, shares: list[float]) -> Unpack:
        def unpack(array: HostArray) -> Values:
            # A tensor of which one element in n was looked at has moved about sqrt(n) times as far as those did.
            moved, size = array.reshape(2, -1)
            steps = _root_sum(self.groups, moved * np.sqrt(shares))
            sizes = _root_sum(self.groups, size)
            return {f"update_ratio/{name}": steps[name] / sizes[name] for name in steps if sizes[name] != 0}

        return unpack


def _root_sum(groups: list[str], values: HostArray) -> dict[str, float]:
    """The norm of each group from the norms of its members."""
    totals: dict[str, float] = {}
    with np.errstate(over="ignore"):
        squares = np.square(values.astype(np.float64))
    for group, square in zip(groups, squares, strict=True):
        totals[group] = totals.get(group, 0.0) + float(square)
    return {group: total**0.5 for group, total in totals.items()}


def _part(parameter: Tensor) -> Tensor:
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter  # a DTensor's own shard
    flat = local.detach().reshape(-1)
    return flat[:: -(-flat.numel() // _MOST_ELEMENTS)] if flat.numel() > _MOST_ELEMENTS else flat
