"""A small diffusion model of points on two half circles: predicts the noise that was added."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, silu

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

TIMES, WIDTH, TRAIN_ROWS, VAL_ROWS = 40, 64, 2000, 400
BETAS = torch.linspace(1e-3, 0.2, TIMES)
KEPT = torch.cumprod(1 - BETAS, 0)


@cache
def moons(seed: int) -> Tensor:
    """Points on two half circles, about as far from zero as a standard normal."""
    draw = torch.Generator().manual_seed(seed)
    angle, upper = math.pi * torch.rand(2400, generator=draw), torch.rand(2400, generator=draw) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos()) - 0.5
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin()) - 0.25
    return 1.3 * torch.stack([x, 1.5 * y], dim=1) + 0.05 * torch.randn(2400, 2, generator=draw)


def noised(x: Tensor, config: Config, draw: torch.Generator) -> list[Tensor]:
    """A noisy point, its time, and the noise."""
    time, noise = torch.randint(TIMES, (len(x),), generator=draw), torch.randn(x.shape, generator=draw)
    kept = KEPT[time][:, None]
    if config["bug"] == "variance-for-deviation":  # the schedule of the variance taken for that of the size
        return [kept * x + (1 - kept) * noise, time, noise]
    return [kept.sqrt() * x + (1 - kept).sqrt() * noise, time, noise]


class Denoiser(nn.Module):
    """A perceptron with the time as an input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bug = config["bug"]
        depth = 14 if self.bug == "vanishing" else 3
        self.time = nn.Embedding(TIMES, WIDTH)
        self.first, self.last = nn.Linear(2, WIDTH), nn.Linear(WIDTH, 2)
        self.hidden = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.dropout = nn.Dropout(config["dropout"])
        if config["zero_last"]:
            nn.init.zeros_(self.last.weight)
        if self.bug == "unregistered":
            self.__dict__["layers"] = list(self._modules.pop("hidden"))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        x = self.first(x.to(self.first.weight.dtype))
        if self.bug != "input-ignored":
            x = x + self.time(time)
        for layer in self.__dict__["layers"] if self.bug == "unregistered" else self.hidden:
            x = layer(x).sigmoid() if self.bug == "vanishing" else x + silu(layer(x))
        return self.last(self.dropout(x))


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        noisy, time, noise = batch
        out = model(noisy, time).float()
        if bug == "wrong-target":  # the noisy point, where the noise was meant
            return mse_loss(out, noisy)
        return config["loss_scale"] * mse_loss(out, noise)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x = moons(config["seed"])[:TRAIN_ROWS]
    if config["bug"] == "inputs-not-scaled":
        x = 60 * x
    draw = torch.Generator().manual_seed(config["seed"] + first)
    for rows in rows_in_order(TRAIN_ROWS, config, first):
        yield noised(x[rows], config, draw)


def validation(config: Config) -> list[list[Tensor]]:
    draw = torch.Generator().manual_seed(config["seed"] + 7)
    x = moons(config["seed"])[TRAIN_ROWS:]
    if config["bug"] == "inputs-not-scaled":
        x = 60 * x
    return [noised(part, config, draw) for part in x.split(200)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 3e-3, "batch_size": 80, "steps_per_epoch": 25, "part": "hidden"}
    own |= {"dead": "first.bias", "loss_scale": 1.0, "zero_last": False}
    return declared("diffusion", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Denoiser(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Minus the energy distance of four hundred drawn points to held-out ones; 0 is the best there is."""
    draw, held_out = torch.Generator().manual_seed(1), moons(config["seed"])[TRAIN_ROWS:]
    x = torch.randn(VAL_ROWS, 2, generator=draw)
    for time in reversed(range(TIMES)):
        noise = model(x, torch.full((VAL_ROWS,), time)).float()
        x = (x - BETAS[time] / (1 - KEPT[time]).sqrt() * noise) / (1 - BETAS[time]).sqrt()
        if time > 0:
            x = x + BETAS[time].sqrt() * torch.randn(x.shape, generator=draw)
    if config["bug"] == "inputs-not-scaled":
        x = x / 60
    between, own, others = (torch.cdist(*pair).mean() for pair in ((x, held_out), (x, x), (held_out, held_out)))
    return -float(2 * between - own - others)


train = trainer(configure, task, batches, quality)
