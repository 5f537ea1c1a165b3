"""The largest singular value of every large matrix, by block power iteration with vectors that are kept.

Between two samples a matrix moves little, so the vectors of the last sample are nearly right and an
iteration or two follow the change; it goes on only for matrices whose value still moves. Several vectors at
once cost hardly more than one and converge where the leading singular values lie close together, as in a
fresh random matrix.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from steadyrun.probes.norms import whole

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
