"""Modules that look alarming and do no harm: a hunt must stay silent."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from nonfinite.plants import WIDTH, module


@module
def guarded_before(x: Tensor) -> Tensor:
    below = torch.relu(x)
    safe = torch.where(below > 0, below, torch.ones_like(below))
    return x + torch.where(below > 0, below / safe, torch.zeros_like(x))


@module
def side_metric(x: Tensor) -> Tensor:
    with torch.no_grad():
        _ = (x - x) / (x - x)
        _ = torch.log(torch.relu(x) * 0).mean().item()
    return x


@module
def detached_metric(x: Tensor) -> Tensor:
    _ = torch.log(x.detach() * 0)
    return x


@module
def sampling(x: Tensor) -> Tensor:
    least = x.topk(2, dim=-1).values[..., -1:]
    likely = x.detach().masked_fill(x < least, float("-inf")).softmax(dim=-1)
    picked = torch.multinomial(likely.float().flatten(0, -2), 1)
    return x + 0.01 * picked.view(*x.shape[:-1], 1)


@module
def filled_buffer(x: Tensor) -> Tensor:
    held = torch.empty_like(x)
    held.view(torch.uint8 if x.element_size() == 1 else torch.int32 if x.element_size() == 4 else torch.int16).fill_(-1)
    for row in range(len(x)):
        held[row] = x[row]
    return held


@module
def norm_at_zero(x: Tensor) -> Tensor:
    """Innocent in float32 only: the epsilon of normalize, 1e-12, is zero in float16."""
    off = torch.relu(x - 100)
    return x + off.norm(dim=1, keepdim=True) + functional.normalize(off, dim=1)


@module
def log_space(x: Tensor) -> Tensor:
    scores = x.masked_fill(x < 0, float("-inf"))
    scores[..., 0] = 0.0
    return x + torch.logsumexp(scores, dim=-1, keepdim=True)


@module
def infinite_minimum(x: Tensor) -> Tensor:
    return x + x.masked_fill(x > 0.5, float("inf")).clamp(max=1.0)


@module
def reciprocal_of_infinity(x: Tensor) -> Tensor:
    return x + 1 / (1 + torch.full_like(x, float("inf")))


class CausalBuffer(nn.Module):
    """A mask of minus infinity kept as a buffer, and attention that adds it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, attn_mask=self.mask.to(x.dtype), need_weights=True)[0]


class FusedAttention(nn.Module):
    """Causal fused attention, with a boolean and with an additive mask."""

    def forward(self, x: Tensor) -> Tensor:
        q = x.unsqueeze(1)
        seen = torch.ones(6, 6, dtype=torch.bool, device=x.device).tril()
        bias = torch.zeros(6, 6, dtype=x.dtype, device=x.device).masked_fill(~seen, float("-inf"))
        attend = functional.scaled_dot_product_attention
        return (attend(q, q, q, is_causal=True) + attend(q, q, q, attn_mask=seen) + attend(q, q, q, attn_mask=bias))[
            :, 0
        ]
