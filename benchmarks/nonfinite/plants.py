"""Faulty modules, each a mistake that people make; all take activations and return some of the same shape."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH = 16


def module(function: Any) -> type[nn.Module]:
    """A module without parameters whose forward is this function."""
    name = function.__name__.title().replace("_", "")
    return type(name, (nn.Module,), {"forward": lambda _, x: function(x)})


# -- forward ----------------------------------------------------------------------------------------


@module
def log_of_probability(x: Tensor) -> Tensor:
    return x + (1000 * x.float()).softmax(dim=1).log() / 100


@module
def log_of_negative(x: Tensor) -> Tensor:
    return x * torch.log(x.float() - 2)


@module
def share_of_nothing(x: Tensor) -> Tensor:
    votes = torch.relu(x - 100)
    return x + votes / votes.sum(dim=1, keepdim=True)


@module
def naive_softmax(x: Tensor) -> Tensor:
    raised = torch.exp(1000 * x)
    return raised / raised.sum(dim=1, keepdim=True)


@module
def mean_of_selected(x: Tensor) -> Tensor:
    return x - x[x > 1000].mean()


@module
def deviation_of_one(x: Tensor) -> Tensor:
    pooled = x.flatten(1).mean(dim=1, keepdim=True)
    return x / pooled.std(dim=1).view(-1, *[1] * (x.dim() - 1))


@module
def angle(x: Tensor) -> Tensor:
    return torch.acos(x / x.abs().amax(dim=1, keepdim=True) * 1.01)


@module
def rounded_variance(x: Tensor) -> Tensor:
    variance = (x * x).mean(dim=1, keepdim=True) - x.mean(dim=1, keepdim=True) ** 2 - 100
    return x / variance.sqrt()


@module
def distance_to_infinity(x: Tensor) -> Tensor:
    marked = x.masked_fill(x > 0, float("inf"))
    return x + (marked - marked)


@module
def multiplied_mask(x: Tensor) -> Tensor:
    keep = (x > 0).to(x.dtype)
    return (x + (1 - keep) * float("-inf")).softmax(dim=-1)


@module
def explosion(x: Tensor) -> Tensor:
    return x + (x.float() * 1e25) ** 2


class Wide(nn.Module):
    """A product past 65504."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        nn.init.constant_(self.inner[0].bias, 3000.0)
        nn.init.constant_(self.inner[1].weight, 20.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Normalised(nn.Module):
    """Normalisation without an epsilon, of rows that are constant."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(torch.relu(x - 100))


class Masked(nn.Module):
    """nn.MultiheadAttention with every key padded."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return self.attention(x, x, x, key_padding_mask=padding, need_weights=True)[0]


# -- backward only ----------------------------------------------------------------------------------


def kept(x: Tensor, chosen: Tensor) -> Tensor:
    """Zero where not chosen, as dropout does it; relu would stop a non-finite gradient, a product does not."""
    return x * chosen.to(x.dtype)


@module
def root_at_zero(x: Tensor) -> Tensor:
    return x + kept(x, x > 100).sqrt()


@module
def length_by_hand(x: Tensor) -> Tensor:
    off = kept(x, x > 100)
    return x + off.pow(2).sum(dim=1, keepdim=True).sqrt()


@module
def guarded_afterwards(x: Tensor) -> Tensor:
    below = kept(x, x > 0)
    return x + torch.where(below > 0, below / below, torch.zeros_like(x))


@module
def power_at_zero(x: Tensor) -> Tensor:
    return x + kept(x, x > 0) ** 0.5


@module
def guarded_log(x: Tensor) -> Tensor:
    above = kept(x, x > 0)
    return x + torch.where(above > 0, above.log(), torch.zeros_like(x))


@module
def root_of_size(x: Tensor) -> Tensor:
    return x + (x - x.detach()).abs().sqrt()


@module
def hidden_exponential(x: Tensor) -> Tensor:
    return x + torch.where(x > 0, x, torch.exp(x.float() * 1000))


@module
def angle_at_one(x: Tensor) -> Tensor:
    return x + torch.acos(x / x.abs().amax(dim=1, keepdim=True))


class Reversed(torch.autograd.Function):
    """Divides by its input in backward, which may be zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * 2 * x / x


@module
def own_gradient(x: Tensor) -> Tensor:
    return Reversed.apply(kept(x, x > 0))


@module
def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(lambda held: held + kept(held, held > 0).sqrt(), x, use_reentrant=False)


@module
def checkpointed_reentrant(x: Tensor) -> Tensor:
    return checkpoint(lambda held: held + kept(held, held > 0).sqrt(), x, use_reentrant=True)


@module
def forces(x: Tensor) -> Tensor:
    """A gradient taken inside of the forward pass, as models of forces do."""
    with torch.enable_grad():
        held = x if x.requires_grad else x.detach().requires_grad_()
        energy = (held - held.detach()).pow(2).sum(dim=-1).sqrt().sum()
        return x + torch.autograd.grad(energy, held, create_graph=True)[0]


class Common(nn.Module):
    """A table of which one row is taken very often; the loss does that."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(4, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x


# -- a parameter that gets a gradient of exactly zero -------------------------------------------------


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + 0 * self.scale
