"""A network that solves the equation of a damped swing, u'' + 0.4 u' + 4 u = 0, from its start alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, trainer
from diagnosis.third.loop import assemble, declared, little, whole

END, DAMPING, STIFFNESS = 4.0, 0.4, 4.0


class Curve(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        bend = nn.ReLU if config["bug"] == "kinked" else nn.Tanh
        self.first, self.middle, self.last = nn.Linear(1, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.bend, self.bug = bend(), config["bug"]

    def forward(self, time: Tensor) -> Tensor:
        scaled = time * 1000 if self.bug == "milliseconds" else time / END * 2 - 1
        x = self.middle(self.bend(self.first(scaled)))
        return self.last(self.bend(x))


def residual(model: nn.Module, time: Tensor, bug: str | None) -> Tensor:
    """How far the curve is from obeying the equation."""
    with torch.enable_grad():
        time = time.clone().requires_grad_()
        u = model(time)
        total = u.mean() if bug == "mean-differentiated" else u.sum()
        (slope,) = torch.autograd.grad(total, time, create_graph=True)
        bug_free = bug != "bend-without-graph"
        (bend,) = torch.autograd.grad(slope.sum(), time, create_graph=bug_free, retain_graph=True)
        if bug == "stiffness-sign":
            return bend + DAMPING * slope - STIFFNESS * u
        return bend + DAMPING * slope + STIFFNESS * u


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        inside = residual(model, batch[0], bug).square().mean()
        if bug == "start-forgotten":
            return inside
        with torch.enable_grad():
            zero = torch.zeros(1, 1, requires_grad=True)
            begin = model(zero)
            (slope,) = torch.autograd.grad(begin.sum(), zero, create_graph=True)
            start = (begin - 1).square().mean() + slope.square().mean()
        weight = 1e-5 if bug == "start-x1e-6" else config["start_weight"]
        return config["loss_scale"] * (inside + weight * start)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    bug, number = config["bug"], first
    while True:
        draw = torch.Generator().manual_seed(1000 * config["seed"] + (0 if bug == "same-batch" else number))
        time = END * torch.rand(config["batch_size"], 1, generator=draw)
        if bug == "first-part-only":
            time = time / 4
        if bug == "three-points":
            time = torch.tensor([[0.5], [1.9], [3.1]]).repeat(config["batch_size"] // 3 + 1, 1)
        if config["grid"]:
            time = torch.linspace(0, END, config["batch_size"]).unsqueeze(1)
        if config["curriculum"]:  # from the start onwards
            time = time * min(1.0, 0.25 + number / (0.7 * config["total_steps"]))
        yield [time]
        number += 1


def validation(_config: Config) -> list[list[Tensor]]:
    return [[torch.linspace(0.02, END - 0.02, 80).unsqueeze(1)]]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 900, "lr_max": 1e-2, "batch_size": 48, "steps_per_epoch": 100, "start_weight": 10.0}
    own |= {"part": "last", "dead": "first.bias", "grid": False, "curriculum": False, "loss_scale": 1.0, "clip": None}
    return declared("pinn", bug, seed, changes, **own, weight_decay=0.0, val_every=100)


def task(config: Config) -> steadyrun.Task:
    config = whole(config, configure)
    torch.manual_seed(config["seed"])
    return assemble(config, Curve(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, _config: Config) -> float:
    """How much of the true curve is explained; 1 is all of it."""
    time = torch.linspace(0, END, 200).unsqueeze(1)
    pace = torch.tensor(STIFFNESS - DAMPING**2 / 4).sqrt()
    true = torch.exp(-DAMPING / 2 * time) * (torch.cos(pace * time) + DAMPING / 2 / pace * torch.sin(pace * time))
    return float(1 - (model(time) - true).square().mean() / true.square().mean())


train = trainer(configure, task, batches, quality, Extras(hands_batch=False, declares=little))
