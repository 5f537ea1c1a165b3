"""Super-resolution: small noisy pictures in colour become large ones; a small U-Net adds what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, l1_loss, max_pool2d, mse_loss

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn, few
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer

SIDE, TRAIN_ROWS, VAL_ROWS = 16, 960, 192
Batch = dict[str, Tensor]


@cache
def pictures(seed: int) -> tuple[Tensor, Tensor]:
    """Discs and bars of warm colours with hard edges, and the same, four pixels in one, with a little noise."""
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    place = torch.arange(SIDE).float()
    image = 0.2 * torch.ones(count, 3, SIDE, SIDE)
    for _ in range(3):
        centre = SIDE * torch.rand(count, 2, generator=draw)
        size = 2 + 4 * torch.rand(count, 2, generator=draw)
        down, across = (place - centre[:, :1]) / size[:, :1], (place - centre[:, 1:]) / size[:, 1:]
        disc = down[:, :, None] ** 2 + across[:, None] ** 2 < 1
        bar = (down[:, :, None].abs() < 0.4) & (across[:, None].abs() < 2)
        inside = torch.where(torch.rand(count, 1, 1, generator=draw) < 0.5, disc, bar)
        light = torch.rand(count, 3, generator=draw) * torch.tensor([1.0, 0.6, 0.2])
        image = torch.where(inside[:, None], light[:, :, None, None], image)
    small = avg_pool2d(image, 2)
    return small + 0.08 * torch.randn(small.shape, generator=draw), image


class UNet(nn.Module):
    """Down once, up once, with a way around; what it makes is added to the enlarged picture."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.enter, self.norm1 = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.deep, self.norm2 = nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24)
        self.join, self.norm3 = nn.Conv2d(36, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.leave = nn.Conv2d(16, 3, 3, padding=1)
        self.dropout = nn.Dropout2d(config["dropout"])
        self.bug = config["bug"]
        if config["zero_last"]:
            nn.init.zeros_(self.leave.weight)
            nn.init.zeros_(self.leave.bias)

    def forward(self, small: Tensor) -> Tensor:
        large = interpolate(small, scale_factor=2, mode="nearest")
        x = self.norm1(self.enter(large)).relu()
        deep = self.dropout(self.norm2(self.deep(max_pool2d(x, 2))).relu())
        deep = interpolate(deep, scale_factor=2, mode="nearest")
        both = torch.cat([x, deep], dim=1)
        both = self.norm3(self.join(both)).relu()
        more = self.leave(both)
        return large + (more.relu() if self.bug == "only-brighter" else more)


def make_loss(config: Config) -> Any:
    bug, far = config["bug"], l1_loss if config["loss"] == "l1" else mse_loss

    def loss_fn(model: nn.Module, batch: Batch) -> Tensor:
        wanted = batch["large"]
        if bug == "target-is-the-input":  # the wrong key of the batch
            wanted = interpolate(batch["small"], scale_factor=2, mode="nearest")
        loss = far(model(batch["small"]), wanted, reduction=config["reduction"])
        return config["loss_scale"] * loss

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[Batch]:
    bug = config["bug"]
    small, large = (part[:TRAIN_ROWS].clone() for part in pictures(config["seed"]))
    if bug == "large-of-the-next-batch":
        large = large.roll(config["batch_size"], 0)
    if bug == "twelve-pictures":
        small, large = few(12, small, large)
    for number, rows in enumerate(rows_in_order(len(small), config, first), start=first):
        x, y = small[rows], large[rows]
        if config["flips"]:
            flip = torch.rand(len(x), 1, 1, 1, generator=drawn(number)) < 0.5
            x = torch.where(flip, x.flip(3), x)
            y = torch.where(flip, y.flip(3), y)
        if config["spikes"] and number % 80 == 50:  # a few pictures that are far too bright
            x, y = 4 * x, 4 * y
        yield {"small": x, "large": y}


def validation(config: Config) -> list[Batch]:
    small, large = (part[TRAIN_ROWS:] for part in pictures(config["seed"]))
    if config["bug"] == "val-channels-reversed":  # one reader gives RGB, the other BGR
        small, large = small.flip(1), large.flip(1)
    return [{"small": x, "large": y} for x, y in zip(small.split(64), large.split(64), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 300, "lr_max": 4e-3, "batch_size": 16, "steps_per_epoch": 60, "loss": "l1"}
    own |= {"part": "leave", "dead": "norm3.bias", "flips": False, "spikes": False, "zero_last": False}
    return declared("sharpen", bug, seed, changes, **own, reduction="mean", loss_scale=1.0, val_every=30)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, UNet(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How much of the squared error of the plainly enlarged picture is gone, on held-out pictures."""
    errors = [
        [
            mse_loss(guess, batch["large"])
            for guess in (model(batch["small"]), interpolate(batch["small"], scale_factor=2))
        ]
        for batch in validation(config)
    ]
    after, before = torch.tensor(errors).mean(dim=0).tolist()
    return 1 - after / before


train = trainer(configure, task, batches, quality)
