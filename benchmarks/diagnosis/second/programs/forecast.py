"""A GRU that continues noisy time series: up to six values from the last twenty, as a regression."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, smooth_l1_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

PAST, FUTURE, TRAIN_ROWS, VAL_ROWS, WIDTH = 20, 6, 1280, 256, 24
LEVEL, SPREAD = 300.0, 40.0


@cache
def series(seed: int) -> tuple[Tensor, Tensor]:
    """Sums of two waves in their own units, and how many future values of each are known."""
    draw = torch.Generator().manual_seed(seed)
    count, time = TRAIN_ROWS + VAL_ROWS, torch.arange(PAST + FUTURE)
    period = torch.tensor([5.0, 9.0, 13.0])[torch.randint(3, (count, 2), generator=draw)]
    phase, size = 6.28 * torch.rand(count, 2, generator=draw), 0.4 + torch.rand(count, 2, generator=draw)
    waves = size[..., None] * torch.sin(6.28 * time / period[..., None] + phase[..., None])
    values = waves.sum(dim=1) + 0.15 * torch.randn(count, PAST + FUTURE, generator=draw)
    return LEVEL + SPREAD * values, torch.randint(2, FUTURE + 1, (count,), generator=draw)


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    """Past, future and mask of one split; unknown future values have a filler, as files have it."""
    bug = config["bug"]
    values, known = series(config["seed"])
    if bug == "inputs-not-scaled":
        values = values / SPREAD * 10
    elif train or bug != "val-not-normalised":
        values = (values - LEVEL) / SPREAD
    mask = torch.arange(FUTURE) < known[:, None]
    past, future = values[:, :PAST], torch.where(mask, values[:, PAST:], config["filler"])
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    past, future, mask = past[rows].clone(), future[rows].clone(), mask[rows]
    if not train:
        return [past, future, mask]
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if bug == "labels-permuted":
        future = future[torch.randperm(len(future), generator=draw)]
    if bug == "nan-example":
        past[700, 4] = torch.nan
    if config["outliers"]:
        future[::50] += 8.0
    return [past, future, mask]


class Forecaster(nn.Module):
    """Reads the past with a GRU, then writes the future value by value."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder, self.cell = nn.GRU(1, WIDTH, batch_first=True), nn.GRUCell(1, WIDTH)
        self.dropout, self.head = nn.Dropout(config["dropout"]), nn.Linear(WIDTH, 1)
        self.config = config

    def forward(self, past: Tensor, truth: Tensor | None = None) -> Tensor:
        """`truth` is fed to the decoder where it is given; otherwise it goes on from its own values."""
        state = self.encoder(past.unsqueeze(2))[1][0]
        if self.config["bug"] == "cut-off":
            state = state.detach()
        value, written = past[:, -1:], []
        for step in range(FUTURE):
            if truth is not None:
                value = truth[:, step : step + 1]
            state = self.cell(value, state)
            value = self.head(self.dropout(state))
            written.append(value)
        return torch.cat(written, dim=1)


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        past, future, mask = batch
        shown = None
        if bug == "decoder-sees-target" and model.training:  # the teacher's values are not shifted
            shown = future
        if bug == "teacher-forced" and model.training:  # a zero stands for the last value, as at no evaluation
            shown = torch.cat([torch.zeros_like(past[:, -1:]), future[:, :-1]], dim=1)
        out = model(past, shown)
        if bug == "padding-learned":
            mask = torch.ones_like(mask)
        if bug == "mask-inverted":
            mask = ~mask
        if bug == "broadcast":  # the last known value alone, (N, 1) against (N)
            last = mask.sum(dim=1, keepdim=True) - 1
            return mse_loss(out.gather(1, last), future.gather(1, last).squeeze(1))
        loss = smooth_l1_loss if config["loss"] == "smooth-l1" else mse_loss
        return config["loss_scale"] * loss(out[mask], future[mask])

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    parts = dataset(config, train=True)
    for number, rows in enumerate(rows_in_order(TRAIN_ROWS, config, first), start=first):
        past, future, mask = (part[rows] for part in parts)
        if config["bug"] == "one-batch-in-other-units" and number % 40 == 17:  # one file of the forty is in millimetres
            future = 1000 * future
        yield [past, future, mask]


def validation(config: Config) -> list[list[Tensor]]:
    past, future, mask = dataset(config, train=False)
    return [[past[at : at + 64], future[at : at + 64], mask[at : at + 64]] for at in range(0, VAL_ROWS, 64)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 5e-3, "batch_size": 32, "steps_per_epoch": 40, "part": "cell"}
    own |= {"loss": "mse", "loss_scale": 1.0, "outliers": False, "filler": 0.0, "zero_grad": "start"}
    return declared("forecast", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Forecaster(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Part of the variance of held-out futures that is forecast; repeating the mean has 0."""
    past, future, mask = (torch.cat(parts) for parts in zip(*validation(config), strict=True))
    known = future[mask]
    return 1 - float(mse_loss(model(past)[mask], known) / known.var())


train = trainer(configure, task, batches, quality)
