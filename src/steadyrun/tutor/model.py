"""The mini-GPT: a small decoder-only transformer with pre-norm blocks."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the model. `vocab_size` is the output width, larger than the tokenizer's vocabulary."""

    vocab_size: int = 512
    context: int = 32
    layers: int = 2
    width: int = 128
    heads: int = 4
    dropout: float = 0.0
    causal: bool = True


class Embedding(nn.Module):
    """Token plus learned position embedding, in one module whose output starts the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocab_size, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        embedded: Tensor = self.dropout(self.token(tokens) + self.position(positions))
        return embedded


class Attention(nn.Module):
    """Multi-head self-attention; with `causal` a position attends only to itself and earlier positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.causal = config.causal
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        # No padding mask: padding comes last, no earlier position attends to it, and its loss is ignored.
        mixed = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal, dropout_p=self.dropout if self.training else 0.0
        )
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return projected


class FeedForward(nn.Module):
    """Two linear layers with a GELU between them, four times as wide inside."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width)
        self.activation = nn.GELU()
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(self.activation(self.up(x)))
        return out


class Block(nn.Module):
    """One residual block: attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out


class MiniGPT(nn.Module):
    """A GPT from token ids of shape (batch, length) to logits of shape (batch, length, vocab_size)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = Embedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.final_norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.final_norm(x))
        return logits


def init_weights(model: nn.Module, std: float = 0.02) -> None:
    """Initialise linear and embedding weights from N(0, std) and linear biases with zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
