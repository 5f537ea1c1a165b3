"""Small training programs that the probe tests share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun


class Block(nn.Module):
    """A pre-norm transformer block with fused attention."""

    def __init__(self, width: int = 32, heads: int = 4, causal: bool = True) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A small GPT; `returns` says in what its logits come."""

    def __init__(self, vocab: int = 50, width: int = 32, layers: int = 2, returns: str = "tensor") -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.returns = returns

    def forward(self, tokens: Tensor) -> Any:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.final_norm(x))
        return {"tensor": logits, "tuple": (logits, None), "dict": {"logits": logits}}[self.returns]


def mlp(width: int = 16) -> nn.Module:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))


def batch_of(seed: int, rows: int = 12) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 8, generator=source), torch.randint(0, 3, (rows,), generator=source)


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def true_norm(model: nn.Module) -> float:
    """The global gradient norm, the slow and obvious way."""
    squares = [p.grad.double().pow(2).sum() for p in model.parameters() if p.grad is not None]
    return float(torch.stack(squares).sum().sqrt())


def values(path: Path, name: str) -> list[float]:
    return steadyrun.open_run(path).series(name).values.tolist()
