"""The largest singular value of every large matrix, by block power iteration with vectors that are kept.

Between two samples a matrix moves little, so the vectors of the last sample are nearly right and one
iteration follows the change. The first sample iterates longer. Several vectors at once cost hardly more
than one and converge where the leading singular values lie close together, as in a fresh random matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

SMALLEST_SIDE = 16
SMALLEST_SIZE = 2_048
_VECTORS = 8
_FIRST, _NEXT = 24, 1
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
        """The largest singular value of each matrix, in order."""
        with torch.no_grad():
            return torch.stack([self._norm(name, parameter) for name, parameter in self.matrices])

    def _norm(self, name: str, parameter: Tensor) -> Tensor:
        matrix = parameter.detach().flatten(1).float()
        if matrix.shape[0] < matrix.shape[1]:
            matrix = matrix.T
        vectors = self._vectors.get(name)
        fresh = vectors is None or vectors.device != matrix.device
        block = _start(matrix) if vectors is None or fresh else vectors
        for _ in range(_FIRST if fresh else _NEXT):
            block = matrix.T @ (matrix @ _orthonormal(block))
        self._vectors[name] = block = _orthonormal(block)
        image = matrix @ block
        try:
            largest: Tensor = torch.linalg.eigvalsh(image.T @ image)[-1]
            return largest.clamp(min=0).sqrt()
        except RuntimeError:  # the matrix holds a NaN or an infinity, and so do the vectors now
            del self._vectors[name]
            return image.new_tensor(float("nan"))


def _start(matrix: Tensor) -> Tensor:
    """Fixed start vectors from a generator of our own: the training run's random state stays untouched."""
    random = np.random.Generator(np.random.PCG64(0))
    start = random.standard_normal((matrix.shape[1], min(_VECTORS, matrix.shape[1])))
    return torch.from_numpy(start).to(matrix.device, torch.float32)


def _orthonormal(block: Tensor) -> Tensor:
    basis: Tensor = torch.linalg.qr(block)[0]
    return basis
