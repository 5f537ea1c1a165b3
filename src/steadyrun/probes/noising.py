"""How noise and data are mixed in what a denoising model is given: from its input and the noise it is to find."""

from __future__ import annotations

import torch
from torch import Tensor

_WIDE = 16  # values of an example: with fewer, the part of noise in one example is not known
_FEWEST = 16  # examples
_END = 10  # the last of ten equal parts of the batch by time
NAMES = ("noised/most", "noised/by_squares", "noised/by_sums")


def mixing(given: Tensor, noise: Tensor, times: Tensor | None) -> Tensor | None:
    """The numbers of `NAMES`; None unless the input has the shape of the noise.

    The weight of the noise in the noisiest part of a batch, squared, and the error of two rules for the weight of the
    data beside noise of weight s: sqrt(1 - s²) and 1 - s.
    """
    if given.shape != noise.shape or given.dim() < 2 or len(given) < _FEWEST or not given.is_floating_point():
        return None
    with torch.no_grad():
        data, added = given.detach().float().flatten(1), noise.detach().float().flatten(1)
        missing = data.new_full((), torch.nan)
        weights = (data * added).sum(1) / added.square().sum(1).clamp(min=1e-12)
        most = missing
        if times is not None and len(times) == len(data):
            most = _noisiest(data, added, times)
        elif data.shape[1] >= _WIDE:
            most = weights.square().amax()
        if data.shape[1] < _WIDE:
            return torch.stack([most, missing, missing])
        rest = (data - weights[:, None] * added).square().mean(1)
        shapes = ((1 - weights.square()).clamp(min=0), (1 - weights).square())
        return torch.stack([most, *(_misfit(rest, shape) for shape in shapes)])


def _noisiest(data: Tensor, noise: Tensor, times: Tensor) -> Tensor:
    """The squared weight of the noise at the end of time, whichever end that is."""
    order = times.detach().float().flatten().argsort()
    part = max(2, len(order) // _END)
    ends = [order[:part], order[-part:]]
    weights = [(data[end] * noise[end]).sum() / noise[end].square().sum().clamp(min=1e-12) for end in ends]
    return torch.stack(weights).square().amax()


def _misfit(values: Tensor, shape: Tensor) -> Tensor:
    """How much of the values the best multiple of a shape leaves unexplained."""
    best = (values * shape).sum() / shape.square().sum().clamp(min=1e-12)
    return (values - best * shape).square().sum() / values.square().sum().clamp(min=1e-12)
