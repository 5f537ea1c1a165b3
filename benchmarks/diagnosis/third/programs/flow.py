"""A normalising flow: the density of points on two thin arcs; its loss is a negative log-likelihood, below zero."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs

TRAIN_ROWS, VAL_ROWS, WIDTH = 2000, 500, 32


@cache
def points(seed: int) -> Tensor:
    draw, count = torch.Generator().manual_seed(seed), TRAIN_ROWS + VAL_ROWS
    angle = 3.14 * torch.rand(count, generator=draw)
    side = torch.randint(2, (count,), generator=draw) * 2.0 - 1
    place = torch.stack([torch.cos(angle) * side + side / 2, torch.sin(angle) * side - side / 4], dim=1)
    return 0.4 * (place + 0.07 * torch.randn(count, 2, generator=draw))


def dataset(config: Config, *, train: bool) -> Tensor:
    bug = config["bug"]
    x = points(config["seed"])[:TRAIN_ROWS] if train else points(config["seed"])[TRAIN_ROWS:]
    x = x.clone()
    if bug == "val-in-other-units" and not train:
        x = 2.54 * x
    if bug == "nan-example" and train:
        x[1234, 0] = torch.nan
    if bug == "rounded-inputs" and train:  # written with one digit
        x = (x * 5).round() / 5
    return x


class Flow(nn.Module):
    """Couplings: one coordinate is moved and stretched by what a small network makes of the other."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(1, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
            for _ in range(config["couplings"])
        )
        self.bug = config["bug"]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What lies behind the points, and the logarithm of how much space was stretched."""
        one, two, stretched = x[:, :1], x[:, 1:], torch.zeros(len(x))
        for net in self.nets:
            stretch, shift = net(one).chunk(2, dim=1)
            stretch = stretch if self.bug == "stretch-unbounded" else 2 * stretch.tanh()
            two, stretched = two * stretch.exp() + shift, stretched + stretch.squeeze(1)
            if self.bug != "never-alternates":
                one, two = two, one
        return torch.cat([one, two], dim=1), stretched


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        behind, stretched = model(batch[0])
        normal = -0.5 * behind.square().sum(dim=1) - 1.8379
        if bug == "stretch-forgotten":
            return -normal.mean()
        if bug == "stretch-sign":
            return -(normal - stretched).mean()
        if bug == "density-sign":
            return (normal + stretched).mean()
        density = normal + stretched
        return -density.sum() if config["reduction"] == "sum" else -density.mean()

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x = dataset(config, train=True)
    for number, rows in enumerate(rows_in_order(len(x), config, first), start=first):
        part = x[rows]
        if config["jitter"]:  # in training alone
            draw = torch.Generator().manual_seed(number)
            part = part + config["jitter"] * torch.randn(part.shape, generator=draw)
        yield [part]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(100, dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 600, "lr_max": 5e-3, "batch_size": 100, "steps_per_epoch": 20, "couplings": 6}
    return declared(
        "flow", bug, seed, changes, **own, part="nets.0", dead="nets.0.0.bias", jitter=0.0, reduction="mean"
    )


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Flow(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Mean log-likelihood of held-out points."""
    behind, stretched = model(dataset(config, train=False))
    return float((-0.5 * behind.square().sum(dim=1) - 1.8379 + stretched).mean())


train = trainer(configure, task, batches, quality)
