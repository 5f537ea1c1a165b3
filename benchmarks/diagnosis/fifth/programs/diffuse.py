"""A diffusion model of small drawn shapes, sampled from an average of its weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.fifth.objectives_loop import (
    Objective,
    apart,
    assemble,
    declared,
    drawn,
    pictures,
    plain_step,
    rows,
    trainer,
)
from diagnosis.harness import Config

SIZE, TRAIN_ROWS, VAL_ROWS = 8, 2048, 512


@cache
def shown(seed: int) -> Tensor:
    """Pictures of eight by eight from -1 to 1: larger ones, averaged."""
    large = pictures(seed, TRAIN_ROWS + VAL_ROWS, 2 * SIZE)[0]
    return 2 * nn.functional.avg_pool2d(large, 2).flatten(1) - 1


def kept_of(config: Config) -> Tensor:
    """How much of the picture is kept at every time: the product of the alphas."""
    times: int = config["times"]
    if config["noise_schedule"] == "cosine":
        at = torch.arange(times + 1) / times
        curve = torch.cos((at + 0.008) / 1.008 * math.pi / 2).square()
        return (curve[1:] / curve[0]).clamp(min=1e-3)
    alphas = 1 - torch.linspace(1e-3, 0.2 * 50 / times, times)
    return alphas.cumprod(dim=0)


class Net(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.time = nn.Embedding(config["times"], 64)
        self.first = nn.Linear(SIZE**2 + 64, 256)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, SIZE**2))
        self.bug = config["bug"]

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        if self.bug == "time-not-given":
            time = torch.zeros_like(time)
        out: Tensor = self.body(self.first(torch.cat([x, self.time(time)], dim=1)))
        return out


class Loss(Objective):
    """The squared error of what is predicted; `average` is the model that is sampled from."""

    average: nn.Module

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.kept = kept_of(config)

    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        (x,) = batch
        config, bug = self.config, self.bug
        time = torch.randint(config["times"], (len(x),))
        if bug == "first-time-only":
            time = torch.zeros_like(time)
        noise = torch.randn_like(x)
        if bug == "noise-drawn-once":
            noise = torch.randn(1, x.shape[1], generator=drawn(3)).expand_as(x)
        kept = self.kept[time][:, None]
        if bug == "alphas-not-multiplied":
            kept = (self.kept / torch.cat([torch.ones(1), self.kept[:-1]]))[time][:, None]
        given = kept.sqrt() * x + (1 - kept).sqrt() * noise
        if bug == "roots-forgotten":
            given = kept * x + (1 - kept) * noise
        found = model(given, time)
        target = {"epsilon": noise, "sample": x, "v_prediction": kept.sqrt() * noise - (1 - kept).sqrt() * x}[
            "sample" if bug == "picture-for-noise" else config["prediction_type"]
        ]
        if bug == "noisy-picture-as-target":
            target = given
        error = (found - target).square().mean(dim=1)
        snr = (kept / (1 - kept)).squeeze(1)
        if config["weighting"] == "min-snr":
            error = error * snr.clamp(max=5.0) / snr
        if bug == "weight-sign":  # meant to be 1 - kept, written kept - ...
            error = error * (0.5 - kept.squeeze(1))
        late = time >= config["times"] // 2
        if model.training and bool(late.any()) and not bool(late.all()):
            self.keep(loss_early_t=error[~late].mean(), loss_late_t=error[late].mean())
        return error.mean()


def step(task: steadyrun.Task, batch: list[Tensor]) -> Tensor:
    """One optimizer step, then the average takes over a part of the weights."""
    loss = plain_step(task, batch)
    loss_fn: Any = task.loss_fn
    decay = {"average-never-updated": 1.0, "average-of-0.99999": 0.99999}.get(loss_fn.bug, loss_fn.config["ema_decay"])
    with torch.no_grad():
        for mean, now in zip(loss_fn.average.parameters(), task.model.parameters(), strict=True):
            mean.lerp_(now, 1 - decay)
    return loss


def batches(config: Config) -> Iterator[list[Tensor]]:
    x = shown(config["seed"])[:TRAIN_ROWS]
    if config["bug"] == "pixels-not-scaled":
        x = 127.5 * (x + 1)
    return ([x[chosen]] for chosen in rows(TRAIN_ROWS, config))


def validation(config: Config) -> list[list[Tensor]]:
    x = shown(config["seed"])[TRAIN_ROWS:]
    if config["bug"] == "pixels-not-scaled":
        x = 127.5 * (x + 1)
    return [[part] for part in x.split(128)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 1000, "lr_max": 2e-3, "batch_size": 128, "times": 50, "noise_schedule": "linear"}
    own |= {"prediction_type": "epsilon", "weighting": "none", "ema_decay": 0.98, "val_every": 100}
    return declared("diffuse", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model, loss_fn = Net(config), Loss(config)
    loss_fn.average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr_max"])
    return assemble(config, model, optimizer, loss_fn, batches, validation(config), step)


def quality(built: steadyrun.Task, config: Config) -> float:
    """How near drawn samples are to held-out pictures: minus the sliced Wasserstein distance; not below -100."""
    loss_fn: Any = built.loss_fn
    kept, model, draw = kept_of(config), loss_fn.average.eval(), drawn(9)
    x = torch.randn(VAL_ROWS, SIZE**2, generator=draw)
    for number in reversed(range(config["times"])):
        now, before = kept[number], kept[number - 1] if number else torch.tensor(1.0)
        found = model(x, torch.full((VAL_ROWS,), number))
        if config["prediction_type"] == "epsilon":
            found = (x - (1 - now).sqrt() * found) / now.sqrt()
        if config["prediction_type"] == "v_prediction":
            found = now.sqrt() * x - (1 - now).sqrt() * found
        if config["bug"] != "pixels-not-scaled":
            found = found.clamp(-1, 1)
        step_kept = now / before
        x = (before.sqrt() * (1 - step_kept) * found + step_kept.sqrt() * (1 - before) * x) / (1 - now)
        if number:
            x = x + ((1 - step_kept) * (1 - before) / (1 - now)).sqrt() * torch.randn(x.shape, generator=draw)
    if config["bug"] == "pixels-not-scaled":
        x = x / 127.5 - 1
    return max(-apart(x, shown(config["seed"])[TRAIN_ROWS:]), -100.0)


train = trainer(configure, task, quality)
