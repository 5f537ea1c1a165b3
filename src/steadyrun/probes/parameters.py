"""Per block: gradient norm, parameter norm, and how far one step moved the weights relative to their size."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from steadyrun.probes.gradients import SampledNorms
from steadyrun.probes.norms import norms, whole
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values
from steadyrun.program.torch_compat import foreach_sub

# The largest singular value of every large matrix, by block power iteration with vectors that are kept.
#
# Between two samples a matrix moves little, so the vectors of the last sample are nearly right and an
# iteration or two follow the change; it goes on only for matrices whose value still moves. Several vectors at
# once cost hardly more than one and converge where the leading singular values lie close together, as in a
# fresh random matrix.


SMALLEST_SIDE = 16
SMALLEST_SIZE = 2_048
_VECTORS = 8
_MOST_ROUNDS = 24
_SETTLED_FIRST, _SETTLED = 3e-4, 1e-3  # relative change of the value in one round
_MOST_MATRICES = 96
_COPIED_AT_ONCE = 2**25  # elements


def large_matrices(named: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """The matrices worth following (convolutions as output x rest), the largest where there are too many."""
    matrices = [
        (name, parameter)
        for name, parameter in named
        if parameter.dim() >= 2
        and parameter.is_floating_point()
        and min(parameter.shape[0], math.prod(parameter.shape[1:])) >= SMALLEST_SIDE
        and parameter.numel() >= SMALLEST_SIZE
    ]
    if len(matrices) <= _MOST_MATRICES:
        return matrices
    kept = {name for name, _ in sorted(matrices, key=lambda matrix: -matrix[1].numel())[:_MOST_MATRICES]}
    return [matrix for matrix in matrices if matrix[0] in kept]


class SpectralProbe:
    """Follows the spectral norms of `matrices`: all together, or some at a time where each needs a copy in float32."""

    def __init__(self, matrices: list[tuple[str, Tensor]]) -> None:
        self._chunks: list[list[Tensor]] = [[]]
        for _, matrix in matrices:
            if sum(_copied(earlier) for earlier in self._chunks[-1]) + _copied(matrix) > _COPIED_AT_ONCE:
                self._chunks.append([])
            self._chunks[-1].append(matrix)
        self._vectors: list[list[Tensor | None]] = [[None] * len(chunk) for chunk in self._chunks]

    def measure(self) -> Tensor:
        """The largest singular value of each matrix, in order; NaN where a matrix is not finite."""
        with torch.no_grad():
            per_chunk = [self._measure(index) for index in range(len(self._chunks)) if self._chunks[index]]
            return torch.cat([values.to(per_chunk[0].device) for values in per_chunk])

    def _measure(self, chunk: int) -> Tensor:
        tall = [_tall(parameter) for parameter in self._chunks[chunk]]
        kept = self._vectors[chunk]
        settled = _SETTLED_FIRST if None in kept else _SETTLED
        blocks = [_start(matrix) if old is None else old for matrix, old in zip(tall, kept, strict=True)]
        images = [matrix @ block for matrix, block in zip(tall, blocks, strict=True)]
        values = _largest(images)
        moving = list(range(len(tall)))
        for _ in range(_MOST_ROUNDS):
            for index in moving:
                blocks[index] = torch.linalg.qr(tall[index].T @ images[index])[0]
                images[index] = tall[index] @ blocks[index]
            before, values = values, _largest(images)
            change = ((values - before).abs() > settled * values).tolist()
            moving = [index for index in moving if change[index]]
            if not moving:
                break
        finite = torch.isfinite(values).tolist()
        self._vectors[chunk] = [block if good else None for block, good in zip(blocks, finite, strict=True)]
        return values


def _copied(matrix: Tensor) -> int:
    """How many elements have to be copied to look at this matrix."""
    return 0 if matrix.dtype == torch.float32 and not hasattr(matrix, "full_tensor") else matrix.numel()


def _tall(parameter: Tensor) -> Tensor:
    matrix = whole(parameter.detach()).flatten(1).float()
    return matrix.T if matrix.shape[0] < matrix.shape[1] else matrix


def _largest(images: list[Tensor]) -> Tensor:
    """The largest singular value of each image, from one joint eigenvalue problem."""
    device = images[0].device
    grams = torch.stack([(image.T @ image).to(device) for image in images])
    sound = torch.isfinite(grams).all(-1).all(-1)
    top: Tensor = torch.linalg.eigvalsh(torch.where(sound[:, None, None], grams, 0.0))[:, -1]
    return torch.where(sound, top.clamp(min=0).sqrt(), float("nan"))


def _start(matrix: Tensor) -> Tensor:
    """Fixed start vectors from a generator of our own: the training run's random state stays untouched."""
    random = np.random.Generator(np.random.PCG64(0))
    start = np.linalg.qr(random.standard_normal((matrix.shape[1], _VECTORS)))[0]
    return torch.from_numpy(start).to(matrix.device, torch.float32)


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
