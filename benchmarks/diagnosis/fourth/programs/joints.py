"""Key points: where three marks are in a picture, as one heat map for each; convolutions and a sum of squares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import shuffled

SIDE, MARKS, TRAIN_ROWS, VAL_ROWS = 16, 3, 960, 192
Batch = tuple[Tensor, Tensor]


@cache
def pictures(seed: int) -> tuple[Tensor, Tensor]:
    """A plus, a ring and a corner on noise, and their places (down, across) in pixels."""
    fixed = torch.zeros(MARKS, 5, 5)
    fixed[0, 2], fixed[0, :, 2] = 1, 1
    fixed[1], fixed[1, 1:4, 1:4] = 1, 0
    fixed[2, 4], fixed[2, :, 0] = 1, 1
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    where = torch.randint(2, SIDE - 2, (count, MARKS, 2), generator=draw)
    image = 0.3 * torch.randn(count, SIDE, SIDE, generator=draw)
    row, grid = torch.arange(count)[:, None, None], torch.arange(-2, 3)
    for mark in range(MARKS):
        down, across = where[:, mark, 0, None, None] + grid[:, None], where[:, mark, 1, None, None] + grid
        image[row, down, across] += fixed[mark]
    return image.unsqueeze(1), where.float()


def heat(where: Tensor, width: float) -> Tensor:
    """A soft spot at every place."""
    place = torch.arange(SIDE).float()
    down, across = ((place - where[..., each, None]) ** 2 for each in (0, 1))
    return torch.exp(-(down[..., :, None] + across[..., None, :]) / (2 * width**2))


class Finder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        norm = nn.BatchNorm2d if config["norm"] == "batch" else partial(nn.GroupNorm, 4)
        self.first, self.norm1 = nn.Conv2d(1, 16, 5, padding=2), norm(16)
        self.second, self.norm2 = nn.Conv2d(16, 16, 3, padding=1), norm(16)
        self.dropout, self.head = nn.Dropout2d(config["dropout"]), nn.Conv2d(16, MARKS, 1)
        self.bug = config["bug"]

    def forward(self, image: Tensor) -> Tensor:
        x = self.norm1(self.first(image)).relu()
        x = self.dropout(self.norm2(self.second(x)).relu())
        x = self.head(x)
        return x.softmax(dim=1) if self.bug == "softmax-over-marks" else x


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    width = 0.05 if bug == "spots-too-narrow" else config["width"]

    def loss_fn(model: nn.Module, batch: Batch) -> Tensor:
        image, where = batch
        wanted, found = heat(where + 0.4 if bug == "spots-too-narrow" else where, width), model(image)
        if bug == "maps-averaged":  # the mean over marks is taken before the difference
            return mse_loss(found.mean(dim=1), wanted.mean(dim=1))
        if config["reduction"] == "sum":
            return mse_loss(found, wanted, reduction="sum")
        weight = 1 + config["spot_weight"] * wanted
        return (weight * (found - wanted).square()).mean()

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[Batch]:
    bug = config["bug"]
    image, where = (part[:TRAIN_ROWS].clone() for part in pictures(config["seed"]))
    if bug == "down-and-across-swapped":
        where = where.flip(2)
    if bug == "places-of-other-pictures":
        where = shuffled(where, 7)
    if bug == "same-place-for-all":  # one row of the table was read for every picture
        where = where[:1].expand_as(where)
    if bug == "nan-example":
        image[100, 0, 5, 5] = torch.nan
    for number, rows in enumerate(rows_in_order(len(image), config, first), start=first):
        x, y = image[rows], where[rows]
        if bug == "mirrored-without-places":
            flip = torch.rand(len(x), generator=drawn(number)) < 0.5
            x = torch.where(flip[:, None, None, None], x.flip(3), x)
        if config["noise"]:
            x = x + config["noise"] * torch.randn(x.shape, generator=drawn(number))
        yield x, y


def validation(config: Config) -> list[Batch]:
    image, where = (part[TRAIN_ROWS:] for part in pictures(config["seed"]))
    if config["bug"] == "val-marks-in-another-order":
        where = where.roll(1, 1)
    if config["bug"] == "val-negative":
        image = -image
    return list(zip(image.split(64), where.split(64), strict=True))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 260, "lr_max": 5e-3, "batch_size": 16, "steps_per_epoch": 60, "norm": "batch"}
    own |= {"part": "second", "dead": "norm2.bias", "width": 1.0, "spot_weight": 10.0, "noise": 0.0}
    return declared("joints", bug, seed, changes, **own, reduction="mean", val_every=26)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Finder(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How many marks of held-out pictures are found within a pixel and a half."""
    image, where = (torch.cat(parts) for parts in zip(*validation(config), strict=True))
    best = model(image).flatten(2).argmax(dim=2)
    found = torch.stack([best // SIDE, best % SIDE], dim=2)
    return float(((found - where).square().sum(dim=2).sqrt() < 1.5).float().mean())


train = trainer(configure, task, batches, quality)
