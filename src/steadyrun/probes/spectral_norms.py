"""The largest singular value of every large matrix, by a few steps of Lanczos bidiagonalisation with kept vectors.

Nothing here waits for the device. Matrices of one shape are stacked, so that a kernel works on all of them; the small
bidiagonal matrices go to the host with the other numbers of a row, and their singular values are taken there. The
vector that a matrix stretched most is kept, and a little of a fixed one added to it: between two samples a matrix moves
little, so a few steps follow it, also to another vector that it stretches more by now.
Large models are measured part by part, each at steps of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from steadyrun.probes.norms import whole
from steadyrun.probes.row_queue import HostArray, ProbeRow, Unpack, Values

SMALLEST_SIDE = 16
SMALLEST_SIZE = 2_048
_MOST_MATRICES = 96
_STEPS_FIRST, _STEPS = 16, 8  # of the bidiagonalisation, without and with a vector from earlier samples
_ADDED = 0.1  # of the fixed vector: without it 16 steps were 6% off after two singular values had changed places
_AT_ONCE = 2**22  # elements measured in one step of training, unless a single matrix has more: 16 MiB in float32
_STACKED = 2**18  # elements; on the CPU a larger matrix gains less from company than its copy costs
_SQUARINGS = 4  # of the small matrix: its 16th power leaves the largest eigenvector, and overflows nowhere
_TINY = 1e-30


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
    """Follows the spectral norms of `matrices` in `parts`, of which a step measures one or all."""

    def __init__(self, matrices: list[tuple[str, Tensor]]) -> None:
        self._parts: list[list[_Stack]] = []
        size = _AT_ONCE
        for stack in _stacks(matrices):
            if size + stack.size > _AT_ONCE:
                self._parts.append([])
                size = 0
            self._parts[-1].append(stack)
            size += stack.size

    @property
    def parts(self) -> int:
        return len(self._parts)

    def fill(self, row: ProbeRow, parts: list[int]) -> None:
        """Put the largest singular value of each matrix of these parts into a row; NaN if a matrix is not finite."""
        with torch.no_grad():
            for part in parts:
                for stack in self._parts[part]:
                    row.put_many(*stack.measure())


@dataclass
class _Stack:
    """Matrices of one shape that are measured together."""

    names: list[str]
    matrices: list[Tensor]
    _kept: Tensor | None = None
    _fresh: Tensor = field(default_factory=lambda: torch.zeros(()))
    _sound: bool = True  # as far as is known: the matrices of the last sample were finite

    @property
    def size(self) -> int:
        return sum(matrix.numel() for matrix in self.matrices)

    def measure(self) -> tuple[Tensor, Unpack]:
        """The entries of the bidiagonal matrices, and how to read singular values off them."""
        map_ = _Map([_tall(matrix) for matrix in self.matrices])
        followed = self._kept is not None and self._sound
        start = self._start(map_)
        entries, basis = _bidiagonal(map_, start, _STEPS if followed else _STEPS_FIRST)
        self._kept = _most_stretched(entries, basis)
        return entries, self._largest

    def _start(self, map_: _Map) -> Tensor:
        """The kept vectors, and fixed ones for those matrices that have none or were not finite."""
        if self._kept is None or self._kept.device != map_.device:
            vector = _fixed(map_.width).to(map_.device)  # once: it is a wait
            self._fresh = self._kept = vector.expand(len(self.matrices), -1).unsqueeze(1)
            return self._fresh
        sound = torch.isfinite(self._kept).all(2, keepdim=True) & (self._kept != 0).any(2, keepdim=True)
        start = torch.where(sound, self._kept + _ADDED * self._fresh, self._fresh)
        unit: Tensor = start / torch.linalg.vector_norm(start, dim=2, keepdim=True)
        return unit

    def _largest(self, entries: HostArray) -> Values:
        """On the host: the largest singular value of each small matrix."""
        diagonals, beside = np.moveaxis(entries.reshape(len(self.names), -1, 2).astype(np.float64), -1, 0)
        steps = diagonals.shape[1]
        small = np.zeros((len(self.names), steps, steps + 1))
        places = np.arange(steps)
        small[:, places, places], small[:, places, places + 1] = diagonals, beside
        sound = np.isfinite(small.sum((1, 2)))
        small[~sound] = 0.0
        values = np.linalg.svd(small, compute_uv=False)[:, 0]
        self._sound = bool(sound.all())
        return dict(zip((f"spectral_norm/{name}" for name in self.names), np.where(sound, values, np.nan), strict=True))


class _Map:
    """Multiplies vectors by the matrices of a stack, and by their transposes; in float32, whatever they are kept in.

    Vectors are rows: on the CPU a stack of matrices times columns takes eight times as long.
    """

    def __init__(self, tall: list[Tensor]) -> None:
        self.width, self.device = tall[0].shape[1], tall[0].device
        self._rows = [torch.stack([matrix.float() for matrix in tall])] if len(tall) > 1 else _slices(tall[0])

    def forth(self, vectors: Tensor) -> Tensor:
        images = [vectors @ rows.float().mT for rows in self._rows]
        return images[0] if len(images) == 1 else torch.cat(images, 2)

    def back(self, images: Tensor) -> Tensor:
        if len(self._rows) == 1:
            return images @ self._rows[0].float()
        parts = torch.split(images, [rows.shape[1] for rows in self._rows], 2)
        return torch.stack([part @ rows.float() for rows, part in zip(self._rows, parts, strict=True)]).sum(0)


def _slices(matrix: Tensor) -> list[Tensor]:
    """The rows of one matrix, as many at a time as may be copied into float32."""
    if matrix.dtype == torch.float32:
        return [matrix.unsqueeze(0)]
    return [rows.unsqueeze(0) for rows in torch.split(matrix, max(1, _AT_ONCE // matrix.shape[1]))]


def _bidiagonal(map_: _Map, start: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Golub and Kahan's recurrence: per matrix and step an entry on the diagonal and one beside it; its vectors."""
    right, left = start, torch.zeros(())
    beside: Tensor | None = None
    entries, basis = [], []
    for _ in range(steps):
        basis.append(right)
        left = map_.forth(right) if beside is None else torch.addcmul(map_.forth(right), beside, left, value=-1)
        diagonal = torch.linalg.vector_norm(left, dim=2, keepdim=True)
        left = left / (diagonal + _TINY)
        right = torch.addcmul(map_.back(left), diagonal, right, value=-1)
        beside = torch.linalg.vector_norm(right, dim=2, keepdim=True)
        right = right / (beside + _TINY)
        entries += [diagonal, beside]
    return torch.cat(entries, 2).squeeze(1), torch.cat(basis, 1)


def _most_stretched(entries: Tensor, basis: Tensor) -> Tensor:
    """The vector in the span of `basis` that is stretched most: squaring the small matrix leaves its largest."""
    diagonals, beside = entries[:, ::2], entries[:, 1::2]
    small = torch.diag_embed(diagonals) + torch.diag_embed(beside[:, :-1], 1)
    gram = small.mT @ small
    gram = gram / (gram.abs().amax((1, 2), keepdim=True) + _TINY)
    for _ in range(_SQUARINGS):
        gram = gram @ gram
    weights = gram.sum(1, keepdim=True)
    weights = weights / (torch.linalg.vector_norm(weights, dim=2, keepdim=True) + _TINY)
    vector: Tensor = weights @ basis
    unit: Tensor = vector / (torch.linalg.vector_norm(vector, dim=2, keepdim=True) + _TINY)
    return unit


def _stacks(matrices: list[tuple[str, Tensor]]) -> list[_Stack]:
    """Matrices of one shape together, as many as may be measured at once; the others alone."""
    stacks: list[_Stack] = []
    latest: dict[object, _Stack] = {}
    for name, matrix in matrices:
        small = matrix.numel() <= (_STACKED if matrix.device.type == "cpu" else _AT_ONCE // 2)
        key = (matrix.flatten(1).shape, matrix.device)
        stack = latest.get(key)
        if stack is None or not small or stack.size + matrix.numel() > _AT_ONCE:
            stack = _Stack([], [])
            stacks.append(stack)
            latest[key] = stack
        stack.names.append(name)
        stack.matrices.append(matrix)
    return stacks


def _tall(parameter: Tensor) -> Tensor:
    matrix = whole(parameter.detach()).flatten(1)
    return matrix.T if matrix.shape[0] < matrix.shape[1] else matrix


def _fixed(width: int) -> Tensor:
    """A unit vector from a generator of our own: the training run's random state stays untouched."""
    vector = np.random.Generator(np.random.PCG64(0)).standard_normal(width)
    return torch.from_numpy((vector / np.linalg.norm(vector)).astype(np.float32))
