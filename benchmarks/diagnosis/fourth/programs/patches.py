"""A vision transformer: on which side of the dark spot is the bright one? Patches, a class token, two blocks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, unfold

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import pairs

SIDE, PATCH, WIDTH, HEADS, CLASSES, TRAIN_ROWS, VAL_ROWS = 16, 4, 32, 4, 4, 1600, 320
COUNT = (SIDE // PATCH) ** 2


@cache
def pictures(seed: int) -> tuple[Tensor, Tensor]:
    """A bright and a dark spot on grey noise; the class is left, right, above or below."""
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    dark = 4 + 8 * torch.rand(count, 2, generator=draw)
    label = torch.randint(CLASSES, (count,), generator=draw)
    way = torch.tensor([[0.0, -1.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 0.0]])[label]
    bright = dark + 5 * way + 0.8 * torch.randn(count, 2, generator=draw)
    place = torch.arange(SIDE).float()

    def spot(centre: Tensor) -> Tensor:
        down, across = ((place - centre[:, each, None]) ** 2 for each in (0, 1))
        return torch.exp(-(down[:, :, None] + across[:, None]) / 4)

    image = 120 + 90 * spot(bright) - 90 * spot(dark) + 15 * torch.randn(count, SIDE, SIDE, generator=draw)
    return image.unsqueeze(1), label


class Block(nn.Module):
    def __init__(self, dropout: float, bug: str | None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.dropout, self.bug = nn.Dropout(dropout), bug

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        seen = scores.softmax(dim=2 if self.bug == "attention-over-queries" else 3) @ value
        x = x + self.dropout(self.proj(seen.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(gelu(self.up(self.norm2(x)))))


class ViT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bug = config["bug"]
        self.embed = nn.Linear(PATCH**2, WIDTH)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, COUNT + 1, WIDTH))
        self.blocks = nn.ModuleList(Block(config["dropout"], self.bug) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
        if config["zero_head"]:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, image: Tensor) -> Tensor:
        x = self.embed(unfold(image, PATCH, stride=PATCH).transpose(1, 2))
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        x = x if self.bug == "places-forgotten" else x + self.places
        for block in self.blocks:
            x = block(x)
        x = x[0] if self.bug == "token-of-the-first-picture" else x[:, 0]
        out = self.head(self.norm(x))
        if self.bug == "token-of-the-first-picture":  # x[0] for x[:, 0]: patches where pictures should be
            out = out.mean(dim=0).expand(len(image), -1)
        return out


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        smoothing = config["smoothing"] if model.training else 0.0
        return cross_entropy(model(batch[0]), batch[1], label_smoothing=smoothing)

    return loss_fn


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    bug = config["bug"]
    image, label = (part[:TRAIN_ROWS] if train else part[TRAIN_ROWS:] for part in pictures(config["seed"]))
    if not train:
        return [image / 255 if bug == "val-another-scale" else (image - 120) / 40, label]
    image = (image - 120) / 40
    if config["noisy"]:  # those who label agree on four of five
        lot = torch.rand(len(label), generator=drawn(3)) < 0.2
        label = torch.where(lot, torch.randint(CLASSES, label.shape, generator=drawn(4)), label)
    return [image, label]


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    image, label = dataset(config, train=True)
    for number, rows in enumerate(rows_in_order(len(label), config, first), start=first):
        x, y = image[rows], label[rows]
        if config["augmented"]:  # shifts of up to two pixels that keep the answer, and noise
            draw = drawn(number)
            down, across = torch.randint(-2, 3, (2,), generator=draw).tolist()
            x = x.roll((down, across), (2, 3)) + 0.3 * torch.randn(x.shape, generator=draw)
        yield [x, y]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(80, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 2e-3, "batch_size": 32, "steps_per_epoch": 50, "warmup_steps": 30}
    own |= {"part": "blocks.0", "dead": "blocks.0.up.bias", "num_classes": CLASSES, "weight_decay": 0.05}
    own |= {"zero_head": False, "noisy": False, "augmented": False}
    return declared("patches", bug, seed, changes, **own, val_every=40)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, ViT(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out pictures, prepared as the validation prepares them."""
    return float(torch.cat([model(x).argmax(dim=1) == y for x, y in validation(config)]).float().mean())


train = trainer(configure, task, batches, quality)
