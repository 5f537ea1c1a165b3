"""A transformer, a CNN and an RNN with places deep inside where a fault can be planted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, WORDS, LENGTH, CLASSES = 16, 32, 6, 5
Batch = dict[str, Tensor]


class Attention(nn.Module):
    """Attention written out, with a mask of the positions to leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / WIDTH**0.5
        return self.out(scores.masked_fill(hidden, float("-inf")).softmax(dim=-1) @ v)


class FeedForward(nn.Module):
    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, WIDTH)
        self.plant = plant
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.plant(torch.tanh(self.up(x))))


class Block(nn.Module):
    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.feed_forward = FeedForward(plant)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x), hidden)
        return x + self.feed_forward(x)


class Transformer(nn.Module):
    """Words in, a class per word out; the plant is `blocks.1.feed_forward.plant`."""

    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(nn.Identity()), Block(plant)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, batch: Batch) -> Tensor:
        x = self.embedding(batch["words"])
        later = torch.ones(LENGTH, LENGTH, device=x.device).triu(1).bool()
        for block in self.blocks:
            x = block(x, later | batch["padding"][:, None, :])
        return self.head(x)


class ConvNet(nn.Module):
    """Images in, a class per image out; the plant is `stages.1.body.plant`."""

    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.stages = nn.ModuleList([self._stage(3, nn.Identity()), self._stage(WIDTH, plant)])
        self.head = nn.Linear(WIDTH, CLASSES)

    @staticmethod
    def _stage(channels: int, plant: nn.Module) -> nn.Module:
        stage = nn.Module()
        stage.body = nn.Sequential()
        stage.body.add_module("conv", nn.Conv2d(channels, WIDTH, 3, padding=1, bias=False))
        stage.body.add_module("norm", nn.BatchNorm2d(WIDTH))
        stage.body.add_module("plant", plant)
        return stage

    def forward(self, batch: Batch) -> Tensor:
        x = batch["images"]
        for stage in self.stages:
            x = torch.relu(stage.body(x))
        return self.head(x.mean(dim=(2, 3)))


class Cell(nn.Module):
    """A hand-written gated cell."""

    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * WIDTH, WIDTH)
        self.new = nn.Linear(2 * WIDTH, WIDTH)
        self.plant = plant

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        both = torch.cat([x, state], dim=-1)
        gate = torch.sigmoid(self.gate(both))
        return gate * state + (1 - gate) * self.plant(torch.tanh(self.new(both)))


class Encoder(nn.Module):
    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.cell = Cell(plant)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        state = torch.zeros_like(hidden[:, 0])
        states = []
        for moment in hidden.unbind(dim=1):
            state = self.cell(moment, state)
            states.append(state)
        return torch.stack(states, dim=1)


class Recurrent(nn.Module):
    """Features over time in, a class per moment out; the plant is `encoder.cell.plant`."""

    def __init__(self, plant: nn.Module) -> None:
        super().__init__()
        self.encoder = Encoder(plant)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.encoder(batch["series"]))


MODELS: dict[str, Any] = {"transformer": Transformer, "cnn": ConvNet, "rnn": Recurrent}
PLANTS = {
    "transformer": "blocks.1.feed_forward.plant",
    "cnn": "stages.1.body.plant",
    "rnn": "encoder.cell.plant",
}


def make_batch(device: str) -> Batch:
    """A batch that every model can take its part of."""
    generator = torch.Generator().manual_seed(1)
    batch = {
        "words": torch.randint(0, WORDS, (4, LENGTH), generator=generator),
        "padding": torch.zeros(4, LENGTH, dtype=torch.bool),
        "images": torch.randn(4, 3, 6, 6, generator=generator),
        "series": torch.randn(4, LENGTH, WIDTH, generator=generator),
        "targets": torch.randint(0, CLASSES, (4,), generator=generator),
    }
    return {name: tensor.to(device) for name, tensor in batch.items()}
