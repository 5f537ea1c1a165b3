"""The largest singular value of every large matrix, by block power iteration with vectors that are kept.

Between two samples a matrix moves little, so the vectors of the last sample are nearly right and an
iteration or two follow the change; it goes on only for matrices whose value still moves. Several vectors at
once cost hardly more than one and converge where the leading singular values lie close together, as in a
fresh random matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

SMALLEST_SIDE = 16
SMALLEST_SIZE = 2_048
_VECTORS = 8
_MOST_ROUNDS = 24
_SETTLED_FIRST, _SETTLED = 3e-4, 1e-3  # relative change of the value in one round
_MOST_MATRICES = 96


def large_matrices(named: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """The matrices worth following (convolutions as output x rest), the largest where there are too many."""
    found = [
        (name, parameter)
        for name, parameter in named
        if parameter.dim() >= 2
        and parameter.is_floating_point()
        and min(parameter.shape[0], parameter[0].numel()) >= SMALLEST_SIDE
        and parameter.numel() >= SMALLEST_SIZE
    ]
    if len(found) <= _MOST_MATRICES:
        return found
    kept = {name for name, _ in sorted(found, key=lambda item: -item[1].numel())[:_MOST_MATRICES]}
    return [item for item in found if item[0] in kept]


@dataclass
class SpectralProbe:
    """Follows the spectral norms of `matrices`."""

    matrices: list[tuple[str, Tensor]]
    _vectors: dict[str, Tensor] = field(default_factory=dict)

    def measure(self) -> Tensor:
        """The largest singular value of each matrix, in order; NaN where a matrix is not finite."""
        with torch.no_grad():
            return self._measure()

    def _measure(self) -> Tensor:
        tall = [_tall(parameter) for _, parameter in self.matrices]
        blocks = [self._kept(name, matrix) for (name, _), matrix in zip(self.matrices, tall, strict=True)]
        images = [matrix @ block for matrix, block in zip(tall, blocks, strict=True)]
        values = _largest(images)
        moving = list(range(len(tall)))
        settled = _SETTLED if self._vectors else _SETTLED_FIRST
        for _ in range(_MOST_ROUNDS):
            for place in moving:
                blocks[place] = torch.linalg.qr(tall[place].T @ images[place])[0]
                images[place] = tall[place] @ blocks[place]
            before, values = values, _largest(images)
            change = ((values - before).abs() > settled * values).tolist()
            moving = [place for place in moving if change[place]]
            if not moving:
                break
        finite = torch.isfinite(values).tolist()
        self._vectors = {
            name: block for (name, _), block, good in zip(self.matrices, blocks, finite, strict=True) if good
        }
        return values

    def _kept(self, name: str, matrix: Tensor) -> Tensor:
        vectors = self._vectors.get(name)
        return _start(matrix) if vectors is None or vectors.device != matrix.device else vectors


def _tall(parameter: Tensor) -> Tensor:
    matrix = parameter.detach().flatten(1).float()
    return matrix.T if matrix.shape[0] < matrix.shape[1] else matrix


def _largest(images: list[Tensor]) -> Tensor:
    """The largest singular value of each image, from one joint eigenvalue problem."""
    grams = torch.stack([image.T @ image for image in images])
    sound = torch.isfinite(grams).all(-1).all(-1)
    top: Tensor = torch.linalg.eigvalsh(torch.where(sound[:, None, None], grams, 0.0))[:, -1]
    return torch.where(sound, top.clamp(min=0).sqrt(), float("nan"))


def _start(matrix: Tensor) -> Tensor:
    """Fixed start vectors from a generator of our own: the training run's random state stays untouched."""
    random = np.random.Generator(np.random.PCG64(0))
    start = np.linalg.qr(random.standard_normal((matrix.shape[1], _VECTORS)))[0]
    return torch.from_numpy(start).to(matrix.device, torch.float32)
