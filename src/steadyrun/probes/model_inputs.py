"""What the model is given: mean, standard deviation and non-finite values of its first input, if that has fractions.

Behind tokens, a floating-point tensor is a hidden state or a mask, and no data.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steadyrun.probes.float_tensors import thinned
from steadyrun.program.containers import leaves
from steadyrun.program.torch_compat import is_spread

STATISTICS = ("mean", "std", "nonfinite")


def statistics(inputs: object) -> Tensor | None:
    """The numbers of `STATISTICS`, on the input's device; None if the model is given no floating-point values."""
    tensors = (leaf for leaf in leaves(inputs) if isinstance(leaf, Tensor) and leaf.dim() and leaf.numel())
    tensor = next(tensors, None)
    if tensor is None or not tensor.is_floating_point() or tensor.layout != torch.strided or is_spread(tensor):
        return None
    with torch.no_grad():
        values = thinned(tensor.detach()).float()
        finite = torch.isfinite(values)
        count = finite.sum().clamp(min=1)
        mean = torch.where(finite, values, 0.0).sum() / count
        variance = torch.where(finite, values - mean, 0.0).square().sum() / count
        return torch.stack([mean, variance.sqrt(), 1 - finite.float().mean()])


def pooled(passes: list[Tensor]) -> dict[str, float]:
    """The statistics of several passes together; an unequal last batch counts as much as the others."""
    means, stds, nonfinite = torch.stack(passes).double().cpu().unbind(1)
    mean = float(means.mean())
    square = float((stds.square() + means.square()).mean())
    return {"mean": mean, "std": math.sqrt(max(0.0, square - mean**2)), "nonfinite": float(nonfinite.mean())}
