"""A causal convolution network on signals: the next value and how sure it is; a likelihood that is below zero."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import pairs

LENGTH, WIDTH, TRAIN_ROWS, VAL_ROWS = 49, 16, 1200, 200


@cache
def signals(seed: int) -> Tensor:
    """Two swings of slow and quick, of any phase, with a little noise."""
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    time = torch.arange(LENGTH).float()
    speed = torch.tensor([0.15, 0.5]) + torch.tensor([0.2, 0.5]) * torch.rand(count, 2, generator=draw)
    phase, size = 6.28 * torch.rand(count, 2, generator=draw), 0.5 + torch.rand(count, 2, generator=draw)
    clean = (size[..., None] * torch.sin(speed[..., None] * time + phase[..., None])).sum(dim=1)
    return clean + 0.05 * torch.randn(count, LENGTH, generator=draw)


class Net(nn.Module):
    """Four dilated convolutions, each with a way around; every value sees those before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bug = config["bug"]
        self.enter = nn.Conv1d(1, WIDTH, 1)
        layers = [nn.Conv1d(WIDTH, 2 * WIDTH, 3, dilation=2**each) for each in range(4)]
        self.layers = layers if self.bug == "unregistered" else nn.ModuleList(layers)
        self.dropout, self.leave = nn.Dropout(config["dropout"]), nn.Conv1d(WIDTH, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.enter(x.unsqueeze(1))
        for number, layer in enumerate(self.layers):
            reach = 2 * 2**number
            around = (reach // 2, reach // 2) if self.bug == "sees-ahead" else (reach, 0)
            value, gate = layer(pad(x, around)).chunk(2, dim=1)
            x = x + self.dropout(value.tanh() * gate.sigmoid())
        mean, spread = self.leave(x.relu()).unbind(dim=1)
        return mean, spread.relu() if self.bug == "spread-by-relu" else spread.clamp(-8, 8)


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    ahead = 0 if bug == "not-moved-on" else 1

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        x = batch[0]
        mean, spread = model(x[:, :-1])
        error = (x[:, ahead : ahead + mean.shape[1]] - mean).square()
        if bug == "spread-by-relu":  # a deviation that may be nothing
            return (spread.log() + 0.5 * error / spread.square()).mean()
        if bug == "spread-forgotten":
            return 0.5 * (error * torch.exp(-spread)).mean()
        if bug == "spread-sign":
            return 0.5 * (error * torch.exp(spread) + spread).mean()
        each = 0.5 * (error * torch.exp(-spread) + spread)
        return each.sum() if config["reduction"] == "sum" else each.mean()

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    bug = config["bug"]
    x = signals(config["seed"])[:TRAIN_ROWS].clone()
    if bug == "reshaped-not-transposed":  # the file has one column per signal
        x = x.T.reshape(x.shape)
    if bug == "ten-signals":
        x = x[:10].repeat(120, 1)
    if bug == "stored-as-whole-numbers":
        x = x.round()
    for number, rows in enumerate(rows_in_order(len(x), config, first), start=first):
        part = x[rows]
        if config["louder"]:  # augmentation in training alone
            part = part * (0.7 + 0.6 * torch.rand(len(part), 1, generator=drawn(number)))
        yield [part]


def validation(config: Config) -> list[list[Tensor]]:
    x = signals(config["seed"])[TRAIN_ROWS:]
    return pairs(50, 25.4 * x if config["bug"] == "val-in-other-units" else x)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 360, "lr_max": 5e-3, "batch_size": 30, "steps_per_epoch": 40, "reduction": "mean"}
    own |= {"part": "layers.0", "dead": "layers.0.bias", "louder": False, "weight_decay": 0.0, "causal": True}
    return declared("wave", bug, seed, changes, **own, clip=None, zero_grad="start", val_every=40)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Net(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How much of the variance of the very next value is foretold, when nothing after it is known."""
    x = torch.cat([part for (part,) in validation(config)])
    said, truth = model(x[:, :-1])[0][:, -1], x[:, -1]
    return float(1 - (said - truth).square().mean() / truth.var())


train = trainer(configure, task, batches, quality)
