"""Survival: who lives longer, by Cox's partial likelihood; many times are known as "not before" only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, rows_in_order, trainer
from diagnosis.third.loop import little, pairs, shuffled, whole

COLUMNS, TRAIN_ROWS, VAL_ROWS = 10, 1536, 384


@cache
def patients(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Raw columns, the last time each was seen, and whether that was the end; the well-to-do leave early."""
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    x = torch.randn(count, COLUMNS, generator=draw)
    risk = 1.5 * x[:, 0] * x[:, 1] + x[:, 2].abs() * 1.5 - x[:, 3]
    end = torch.empty(count).exponential_(generator=draw) * torch.exp(-risk)
    left = torch.empty(count).exponential_(generator=draw) * torch.exp(2 * x[:, 3] + 1.5 * x[:, 4])
    scale, centre = 1 + 9 * torch.rand(COLUMNS, generator=drawn(2)), 20 * torch.rand(COLUMNS, generator=drawn(3))
    return x * scale + centre, torch.minimum(end, left), end <= left


def prepared(config: Config, *, train: bool) -> list[Tensor]:
    """Normalised columns, times, and ends, of one split; what some bugs do to them."""
    bug = config["bug"]
    x, time, ended = patients(config["seed"])
    mean, deviation = x[:TRAIN_ROWS].mean(dim=0), x[:TRAIN_ROWS].std(dim=0)
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    x, time, ended = x[rows], time[rows].clone(), ended[rows]
    if bug == "val-not-normalised" and not train:
        return [x / 10, time, ended]
    x = (x - mean) / deviation
    if train and bug == "times-of-others":
        time, ended = shuffled(time, 7), shuffled(ended, 7)
    if train and bug == "left-as-ended":  # training counts patients who only left as ended
        ended = torch.ones_like(ended)
    if train and bug == "ended-and-left-swapped":
        ended = ~ended
    if train and bug == "nan-example":
        x[1000, 5] = torch.nan
    return [x, time, ended]


def network(config: Config) -> nn.Module:
    hidden = 32
    return nn.Sequential(
        *(nn.Linear(COLUMNS, hidden), nn.ReLU(), nn.Dropout(config["dropout"])),
        *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)),
    )


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        x, time, ended = batch
        risk = model(x).squeeze(1)
        order = torch.arange(len(time)) if bug == "not-by-time" else time.argsort(descending=bug != "those-before")
        risk, ended = risk[order], ended[order]
        longer = risk.logcumsumexp(0)
        if bug == "risk-sign":
            longer = (-risk).logcumsumexp(0)
        total = -((risk - longer) * ended).sum()
        return total if config["reduction"] == "sum" else total / ended.sum().clamp(min=1)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    parts = prepared(config, train=True)
    for rows in rows_in_order(TRAIN_ROWS, config, first):
        yield [part[rows[:1]] if config["bug"] == "one-patient-at-a-time" else part[rows] for part in parts]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(VAL_ROWS // 2, *prepared(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 0.05, "batch_size": 128, "steps_per_epoch": 12, "optimizer": "sgd"}
    own |= {"part": "3", "dead": "0.bias", "weight_decay": 1e-4, "clip": 5.0, "schedule": "linear"}
    return declared("survive", bug, seed, changes, **own, reduction="mean", val_every=36)


def task(config: Config) -> steadyrun.Task:
    config = whole(config, configure)
    torch.manual_seed(config["seed"])
    return assemble(config, network(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How often the one of two held-out patients who ended first has the higher risk; a guess has 0.5."""
    x, time, ended = prepared(config, train=False)
    risk = model(x).squeeze(1)
    comparable = (time[:, None] < time) & ended[:, None]
    right = (risk[:, None] > risk).float() + 0.5 * (risk[:, None] == risk)
    return float(right[comparable].mean())


train = trainer(configure, task, batches, quality, Extras(declares=little))
