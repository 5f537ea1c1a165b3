"""Histograms by power of two: the same bins for every tensor and every step, so they can be compared.

Bin k counts the values with 2**k <= |x| < 2**(k+1); below the lowest bin and above the highest, in those;
zeros and non-finite values are counted apart. Off by default.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOWEST, HIGHEST = -24, 16
BINS = tuple(range(LOWEST, HIGHEST + 1))
NAMES = ("zero", "nonfinite", *(f"2^{power}" for power in BINS))
_MOST_ELEMENTS = 2**20


def magnitude_counts(values: Tensor) -> Tensor:
    """Shares of the values per bin, in the order of `NAMES`."""
    flat = values.detach().flatten()
    flat = flat[:: -(-flat.numel() // _MOST_ELEMENTS)].float()
    finite = torch.isfinite(flat)
    zero = flat == 0
    exponents = torch.frexp(flat.abs())[1].long() - 1
    exponents = exponents.clamp(LOWEST, HIGHEST) - LOWEST
    places = torch.where(zero, 0, torch.where(finite, exponents + 2, 1))
    counts = torch.zeros(len(NAMES), device=flat.device)
    counts.scatter_add_(0, places, torch.ones_like(flat))
    return counts / flat.numel()
