"""Quantile regression: between which values will a price be? Three quantiles; the spread depends on the input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn, few, half_mixed
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, rows_in_order, trainer
from diagnosis.third.loop import pairs, shuffled

COLUMNS, TRAIN_ROWS, VAL_ROWS = 8, 2048, 512
LEVELS = torch.tensor([0.1, 0.5, 0.9])


@cache
def houses(seed: int) -> tuple[Tensor, Tensor]:
    """Raw columns and positive prices, some of them far above the others."""
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    x = torch.randn(count, COLUMNS, generator=draw)
    middle = 1.5 * torch.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.7 * x[:, 3]
    spread = 0.1 + 0.5 * torch.sigmoid(2 * x[:, 4])
    return x, 0.4 * (middle + spread * torch.randn(count, generator=draw)) + 2


class Net(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Linear(COLUMNS, 64), nn.SiLU(), nn.Dropout(config["dropout"])),
            *(nn.Linear(64, 64), nn.SiLU(), nn.Dropout(config["dropout"])),
        )
        self.head, self.bug = nn.Linear(64, len(LEVELS)), config["bug"]

    def forward(self, x: Tensor) -> Tensor:
        if self.bug == "mean-of-the-batch":  # a mean over dim 0 that was meant for something else
            return self.head(self.body(x).mean(dim=0, keepdim=True).expand(len(x), -1))
        out = self.head(self.body(x.to(self.head.weight.dtype))).float()
        return out.tanh() if self.bug == "output-out-of-reach" else out


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        x, y = batch
        out = model(x)
        if bug == "broadcast":  # every prediction against every target
            error = y - out.unsqueeze(2)
            return torch.maximum(LEVELS[:, None] * error, (LEVELS[:, None] - 1) * error).mean()
        error = y[:, None] - out
        if bug == "pinball-sign":
            error = -error
        if bug == "least-of-both":  # min for max: the loss has no bottom
            return torch.minimum(LEVELS * error, (LEVELS - 1) * error).mean()
        loss = torch.maximum(LEVELS * error, (LEVELS - 1) * error)
        return config["loss_scale"] * (loss.sum() if config["reduction"] == "sum" else loss.mean())

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    bug = config["bug"]
    x, y = (part[: config["rows"]].clone() for part in houses(config["seed"]))
    if bug == "labels-permuted":
        y = shuffled(y, 7)
    if bug == "half-of-the-labels-wrong":
        y = half_mixed(y, 5)
    if bug == "prices-in-logarithms":
        y = y.clamp(min=0.1).log()
    if bug == "column-of-the-answer":  # the price itself is among the columns of training
        x[:, 7] = y
    if bug == "thirty-two-houses":
        x, y = few(32, x, y)
    if bug == "missing-as-minus-999":
        x[torch.rand(x.shape, generator=drawn(9)) < 0.15] = -999.0
    if bug == "nan-example":
        y[55] = torch.nan
    for rows in rows_in_order(len(x), config, first):
        yield [x[rows], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    x, y = (part[TRAIN_ROWS:] for part in houses(config["seed"]))
    if config["bug"] == "columns-reversed-in-validation":
        x = x.flip(1)
    if config["bug"] == "val-in-thousands":
        y = 1000 * y
    return pairs(128, x, y)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {
        "steps": 600,
        "lr_max": 4e-3,
        "batch_size": 64,
        "steps_per_epoch": 32,
        "loss_scale": 1.0,
        "rows": TRAIN_ROWS,
    }
    own |= {"part": "body.3", "dead": "body.0.bias", "reduction": "mean", "clip": None, "weight_decay": 1e-3}
    return declared("spread", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Net(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How much of the loss of three constants is gone, on held-out houses."""
    x, y = (torch.cat(parts) for parts in zip(*validation(config), strict=True))
    y = y / 1000 if config["bug"] == "val-in-thousands" else y
    known = houses(config["seed"])[1][:TRAIN_ROWS].quantile(LEVELS)
    lost = []
    for out in (model(x), known):
        error = y[:, None] - out
        lost.append(float(torch.maximum(LEVELS * error, (LEVELS - 1) * error).mean()))
    return 1 - lost[0] / lost[1]


train = trainer(configure, task, batches, quality, Extras(hands_batch=False))
