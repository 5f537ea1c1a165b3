"""Noisy 16 x 16 pictures of ten shapes, drawn at random places and sizes."""

from __future__ import annotations

import torch
from torch import Tensor

SIZE = 16
CLASSES = 10


def draw(count: int, seed: int, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Pictures of shape (count, 1, 16, 16) around 0 to 1, and the number of the shape on each."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    centre = 6.0 + 3.0 * torch.rand(count, 2, 1, 1, generator=generator)
    radius = 3.5 + 2.0 * torch.rand(count, 1, 1, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    y, x = rows - centre[:, 0], columns - centre[:, 1]
    every = torch.stack(_all_shapes(x, y, radius), dim=1)
    clean = every[torch.arange(count), labels].float()
    return (clean + noise * torch.randn(clean.shape, generator=generator)).unsqueeze(1), labels


def _all_shapes(x: Tensor, y: Tensor, radius: Tensor) -> list[Tensor]:
    distance = (x**2 + y**2).sqrt()
    largest = torch.maximum(x.abs(), y.abs())
    inside = largest <= radius
    return [
        distance <= radius,
        (distance <= radius) & (distance >= radius - 1.5),
        inside,
        inside & (largest >= radius - 1.5),
        inside & (2 * x.abs() <= y + radius),
        inside & (torch.minimum(x.abs(), y.abs()) <= 1),
        inside & ((x.abs() - y.abs()).abs() <= 1),
        inside & (x.floor() % 4 < 2),
        inside & (y.floor() % 4 < 2),
        inside & ((x.floor() % 4 < 2) ^ (y.floor() % 4 < 2)),
    ]
