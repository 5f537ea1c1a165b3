"""A keyword classifier: small spectrograms of ten words, two convolutions with batch normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

BANDS, FRAMES, WORDS, TRAIN_ROWS, VAL_ROWS = 16, 24, 10, 1600, 400
LEVEL, SPREAD = -20.0, 8.0  # decibels


@cache
def recordings(seed: int) -> tuple[Tensor, Tensor]:
    """Spectrograms in decibels: each word is three gliding tones, spoken sooner or later, softer or louder."""
    fixed, draw = torch.Generator().manual_seed(5), torch.Generator().manual_seed(seed)
    count, times = TRAIN_ROWS + VAL_ROWS, torch.arange(FRAMES)
    start, glide = 14 * torch.rand(WORDS, 3, generator=fixed), 0.5 * torch.randn(WORDS, 3, generator=fixed)
    words = torch.randint(WORDS, (count,), generator=draw)
    shift = torch.randint(-4, 5, (count, 1, 1), generator=draw)
    tones = start[words][..., None] + glide[words][..., None] * (times - shift)
    away = torch.arange(BANDS)[None, None, :, None] - tones[:, :, None, :]
    loudness = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=draw)
    sound = loudness * torch.exp(-away.square() / 2).sum(dim=1) + 1.3 * torch.randn(
        count, BANDS, FRAMES, generator=draw
    )
    return LEVEL + SPREAD * sound.unsqueeze(1), words


def dataset(config: Config, *, train: bool) -> tuple[Tensor, Tensor]:
    """Normalised spectrograms and words of one split; what some bugs do to them."""
    bug = config["bug"]
    x, y = recordings(config["seed"])
    if train and config["imbalance"]:  # four of the ten words are rare
        draw = torch.Generator().manual_seed(3)
        keep = (y < 6) | (torch.rand(len(y), generator=draw) < 0.12)
        x, y = x[:TRAIN_ROWS][keep[:TRAIN_ROWS]], y[:TRAIN_ROWS][keep[:TRAIN_ROWS]]
    else:
        x, y = (x[:TRAIN_ROWS], y[:TRAIN_ROWS]) if train else (x[TRAIN_ROWS:], y[TRAIN_ROWS:])
    if train or bug != "val-not-normalised":
        x = (x - LEVEL) / SPREAD
    if not train:
        harder = config["harder_validation"]
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(9))
        return x + harder * noise, y
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if bug == "labels-permuted":
        y = y[torch.randperm(len(y), generator=draw)]
    if bug == "labels-partly-wrong":
        wrong = torch.rand(len(y), generator=draw) < 0.6
        y = torch.where(wrong, torch.randint(WORDS, y.shape, generator=draw), y)
    if bug == "labels-numbered-anew":  # training numbers the words from another list
        y = (y + 1) % WORDS
    if bug == "sorted":
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
    if bug == "duplicated":  # forty recordings, each of them forty times
        x, y = x[:40].repeat(40, 1, 1, 1), y[:40].repeat(40)
    return x, y


class Net(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(config["dropout"])
        self.head = nn.Linear(16 * (BANDS // 4) * (FRAMES // 4), WORDS)
        self.bug = config["bug"]

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(self.norm1(self.first(x)).relu(), 2)
        x = max_pool2d(self.norm2(self.second(x)).relu(), 2)
        x = self.head(self.dropout(x.flatten(1)))
        return x.log_softmax(dim=1).exp() if self.bug == "softmax-twice" else x


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        smoothing = config["smoothing"] if model.training else 0.0
        out = model(batch[0]).float()
        return cross_entropy(out, batch[1], label_smoothing=smoothing, reduction=config["reduction"])

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x, y = dataset(config, train=True)
    if config["bug"] == "sorted":
        while True:
            yield from ([*pair] for pair in zip(x.split(32), y.split(32), strict=True))
    draw = torch.Generator().manual_seed(config["seed"] + first)
    for number, rows in enumerate(rows_in_order(len(x), config, first), start=first):
        part = x[rows]
        if config["noise_from"] is not None and number >= config["noise_from"]:  # a harder second part, on purpose
            part = part + 1.5 * torch.randn(part.shape, generator=draw)
        yield [part * config["volume"], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    x, y = dataset(config, train=False)
    size = config["batch_size"] if config["reduction"] == "sum" else 100
    return [[part * config["volume"], words] for part, words in zip(x.split(size), y.split(size), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 300, "lr_max": 3e-3, "batch_size": 32, "num_classes": WORDS, "steps_per_epoch": 50}
    own |= {"part": "head", "dead": "norm2.bias", "imbalance": False, "harder_validation": 0.0}
    own |= {"volume": 1.0, "noise_from": None}
    return declared("keyword", bug, seed, changes, **own, reduction="mean")


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Net(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out recordings."""
    right = torch.cat([model(x).argmax(dim=1) == y for x, y in validation(config)])
    return float(right.float().mean())


train = trainer(configure, task, batches, quality)
