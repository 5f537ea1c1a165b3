"""A linear recurrent network (a diagonal state space): the sum of the marked values in a sequence of any length."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, smooth_l1_loss

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn, half_mixed
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, rows_in_order, trainer
from diagnosis.third.loop import shuffled

LONGEST, WIDTH, TRAIN_ROWS, VAL_ROWS = 40, 32, 1600, 320
Batch = dict[str, Tensor]


@cache
def sequences(seed: int) -> Batch:
    """Values, marks and other columns; how long each is; the sum of those marked, weighted towards the end."""
    draw, count = drawn(seed), TRAIN_ROWS + VAL_ROWS
    x = torch.randn(count, LONGEST, 3, generator=draw)
    x[..., 1] = (torch.rand(count, LONGEST, generator=draw) < 0.25).float()
    length = torch.randint(12, LONGEST + 1, (count,), generator=draw)
    ago = (length[:, None] - 1 - torch.arange(LONGEST)).clamp(min=0)
    there = torch.arange(LONGEST) < length[:, None]
    y = (x[..., 0] * x[..., 1] * 0.93**ago * there).sum(dim=1) + 0.05 * torch.randn(count, generator=draw)
    return {"x": x * there[..., None] + 3.0 * ~there[..., None], "length": length, "y": y}


class StateSpace(nn.Module):
    """What enters is gated by a small network, kept by a decay per channel, and read at the last real step."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.enter, self.mix = nn.Linear(3, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        start = torch.linspace(-4, 0, WIDTH) if config["bug"] == "forgets-at-once" else torch.linspace(1.0, 4.0, WIDTH)
        self.keep = nn.Parameter(4 * start - 4 if config["bug"] == "forgets-at-once" else start)
        self.hidden, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(config["dropout"])
        self.out, self.bug = nn.Linear(WIDTH, 1), config["bug"]

    def forward(self, x: Tensor, length: Tensor) -> Tensor:
        if self.bug == "marks-not-read":
            x = torch.stack([x[..., 0], torch.zeros_like(x[..., 1]), x[..., 2]], dim=2)
        if self.bug == "time-axis-first":
            x = x.transpose(0, 1).reshape(x.shape)
        if self.bug == "padding-read":
            length = torch.full_like(length, LONGEST)
        x = self.mix(self.enter(x).relu())
        x = x.detach() if self.bug == "cut-off" else x
        ago = length[:, None] - 1 - torch.arange(LONGEST)
        factor = self.keep.exp() * 0.1 + 1 if self.bug == "grows-in-time" else self.keep.sigmoid()
        weight = factor ** ago.clamp(min=0)[..., None] * (ago >= 0)[..., None]
        state = (weight * x).sum(dim=1)
        out = self.out(self.dropout(self.hidden(state).relu()))
        out = out.sigmoid() if self.bug == "output-out-of-reach" else out
        return out if self.bug == "broadcast" else out.squeeze(1)


def make_loss(config: Config) -> Any:
    far = mse_loss if config["loss"] == "mse" else smooth_l1_loss

    def loss_fn(model: nn.Module, batch: Batch) -> Tensor:
        return config["loss_scale"] * far(model(batch["x"], batch["length"]), batch["y"])

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[Batch]:
    bug = config["bug"]
    data = {name: part[:TRAIN_ROWS].clone() for name, part in sequences(config["seed"]).items()}
    if bug == "labels-permuted":
        data["y"] = shuffled(data["y"], 7)
    if bug == "half-of-the-labels-wrong":
        data["y"] = half_mixed(data["y"], 5)
    if bug == "nan-example":
        data["x"][40, 3, 0] = torch.nan
    if bug == "targets-whole-numbers":
        data["y"] = data["y"].long().float()
    last: Tensor | None = None
    for number, rows in enumerate(rows_in_order(TRAIN_ROWS, config, first), start=first):
        batch = {name: part[rows] for name, part in data.items()}
        if config["curriculum"] and number < 100:  # short ones first
            order = data["length"].argsort()[: TRAIN_ROWS // 3]
            batch = {name: part[order[rows % len(order)]] for name, part in data.items()}
        if bug == "targets-of-the-last-batch":  # the next batch is already loaded when the targets are read
            batch["y"], last = batch["y"] if last is None else last, batch["y"]
        yield batch


def validation(config: Config) -> list[Batch]:
    data = {name: part[TRAIN_ROWS:] for name, part in sequences(config["seed"]).items()}
    if config["bug"] == "val-in-percent":
        data["y"] = 100 * data["y"]
    if config["bug"] == "val-padded-in-front":
        data["x"] = torch.stack(
            [row.roll(LONGEST - int(size), 0) for row, size in zip(data["x"], data["length"], strict=True)]
        )
    return [{name: part[rows] for name, part in data.items()} for rows in torch.arange(VAL_ROWS).split(80)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 5e-3, "batch_size": 32, "steps_per_epoch": 50, "loss": "mse"}
    own |= {"part": "mix", "dead": "hidden.bias", "curriculum": False, "loss_scale": 1.0, "ema": 0.0}
    return declared("recur", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    built = assemble(config, StateSpace(config), make_loss(config), partial(batches, config), validation(config))
    built.average = copy.deepcopy(built.model).requires_grad_(requires_grad=False) if config["ema"] else built.model
    return built


@torch.no_grad()
def average(built: steadyrun.Task, config: Config) -> dict[str, float]:
    """Move the average a little towards the weights of now, if there is one."""
    if config["ema"] and config["bug"] != "average-never-updated":
        for mean, now in zip(built.average.parameters(), built.model.parameters(), strict=True):
            mean.lerp_(now, 1 - config["ema"])
    return {}


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How much of the variance of held-out sums is explained."""
    data = validation(config)
    said = torch.cat([model(batch["x"], batch["length"]).reshape(-1) for batch in data])
    truth = torch.cat([batch["y"] for batch in data]) / (100 if config["bug"] == "val-in-percent" else 1)
    return float(1 - (said - truth).square().mean() / truth.var())


train = trainer(configure, task, batches, quality, Extras(after=average, validated=lambda built: built.average))
