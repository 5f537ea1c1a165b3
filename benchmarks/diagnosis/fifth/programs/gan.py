"""A DCGAN on drawn shapes: a generator and a critic, each with an optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu

import steadyrun
from diagnosis.fifth.objectives_loop import Objective, apart, assemble, declared, drawn, pictures, rows, trainer
from diagnosis.harness import Config

SIZE, NOISE, NARROW, WIDE, TRAIN_ROWS, VAL_ROWS = 16, 16, 16, 32, 2048, 512


@cache
def shown(seed: int) -> Tensor:
    """Pictures from -1 to 1."""
    return 2 * pictures(seed, TRAIN_ROWS + VAL_ROWS, SIZE)[0] - 1


class Game(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            *(nn.Linear(NOISE, WIDE * 16, bias=False), nn.Unflatten(1, (WIDE, 4, 4)), nn.BatchNorm2d(WIDE), nn.ReLU()),
            *(nn.ConvTranspose2d(WIDE, NARROW, 4, 2, 1, bias=False), nn.BatchNorm2d(NARROW), nn.ReLU()),
            *(nn.ConvTranspose2d(NARROW, 1, 4, 2, 1), nn.Sigmoid() if config["bug"] == "range-mismatch" else nn.Tanh()),
        )
        self.critic = nn.Sequential(
            *(nn.Conv2d(1, NARROW, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(NARROW, WIDE, 4, 2, 1), nn.LeakyReLU(0.2)),
            *(nn.Flatten(), nn.Dropout(config["dropout"]), nn.Linear(WIDE * 16, 1)),
        )
        self.bug = config["bug"]

    def make(self, noise: Tensor) -> Tensor:
        made: Tensor = self.generator(torch.ones_like(noise) if self.bug == "noise-not-drawn" else noise)
        return made

    def forward(self, noise: Tensor) -> Tensor:
        made = self.make(noise)
        judged: Tensor = self.critic(made.detach() if self.bug == "generator-cut-off" else made)
        return judged


class Loss(Objective):
    """The loss of the generator; `critic` is that of the other side."""

    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        judged = model(batch[1])
        if self.config["loss"] != "bce":
            return -judged.mean()
        target = torch.zeros_like(judged) if self.bug == "generator-labels-swapped" else torch.ones_like(judged)
        return self.told(judged, target)

    def critic(self, model: Any, real: Tensor, made: Tensor) -> Tensor:
        on_real, on_made = model.critic(real), model.critic(made)
        self.keep(d_real=on_real.mean(), d_fake=on_made.mean())
        if self.config["loss"] == "hinge":
            return relu(1 - on_real).mean() + relu(1 + on_made).mean()
        if self.config["loss"] == "wasserstein":
            penalty = 0 if self.bug == "penalty-forgotten" else slope_penalty(model.critic, real, made)
            gap = on_made.mean() - on_real.mean()
            return (-gap if self.bug == "critic-sign" else gap) + 10 * penalty
        true = torch.full_like(on_real, self.config["real_label"])
        false = torch.zeros_like(on_made)
        if self.bug == "critic-all-real":
            false = torch.ones_like(on_made)
        return self.told(on_real, true) + self.told(on_made, false)

    def told(self, judged: Tensor, target: Tensor) -> Tensor:
        if self.bug == "sigmoid-in-critic":
            judged = judged.sigmoid()
        return binary_cross_entropy_with_logits(judged, target)


def slope_penalty(critic: nn.Module, real: Tensor, made: Tensor) -> Tensor:
    """How far the slope of the critic between real and made pictures is from one."""
    part = torch.rand(len(real), 1, 1, 1)
    between = (part * real + (1 - part) * made).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.flatten(1).norm(dim=1) - 1).square().mean()


def play(task: steadyrun.Task, batch: list[Tensor]) -> Tensor:
    """The critic learns to tell made from real, then the generator to please it."""
    generator, critic = task.optimizers
    model: Any = task.model
    loss_fn: Any = task.loss_fn
    bug, real = loss_fn.bug, batch[0]
    made = model.make(batch[1])
    if bug != "critic-never-zeroed":
        critic.zero_grad()
    loss_d = loss_fn.critic(model, real, made.detach())
    loss_d.backward()
    critic.step()
    generator.zero_grad()
    loss_g: Tensor = loss_fn(model, batch)
    loss_g.backward()
    if bug != "generator-never-stepped":
        generator.step()
    loss_fn.keep(loss_d=loss_d, loss_g=loss_g, **{name: torch.tensor(each) for name, each in loss_fn.terms.items()})
    return loss_g.detach()


def batches(config: Config) -> Iterator[list[Tensor]]:
    real, draw = shown(config["seed"])[:TRAIN_ROWS], drawn(config["seed"])
    if config["bug"] == "pixels-not-scaled":
        real = 127.5 * (real + 1)
    for chosen in rows(TRAIN_ROWS, config):
        yield [real[chosen], torch.randn(len(chosen), NOISE, generator=draw)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 1e-3, "lr_critic": 5e-4, "batch_size": 32, "loss": "bce", "real_label": 1.0}
    return declared("gan", bug, seed, changes, **own, dropout=0.0, betas=[0.5, 0.99])


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Game(config)
    part = model.critic if config["bug"] == "generator-not-in-optimizer" else model.generator
    betas = (config["betas"][0], config["betas"][1])
    optimizers = [
        torch.optim.Adam(part.parameters(), lr=config["lr_max"], betas=betas),
        torch.optim.Adam(model.critic.parameters(), lr=config["lr_critic"], betas=betas),
    ]
    return assemble(config, model, optimizers, Loss(config), batches, [], play)


def quality(built: steadyrun.Task, config: Config) -> float:
    """How near made pictures are to held-out ones: minus the sliced Wasserstein distance."""
    model: Any = built.model
    made = model.train().make(torch.randn(VAL_ROWS, NOISE, generator=drawn(9)))
    if config["bug"] == "pixels-not-scaled":
        made = made / 127.5 - 1
    return -apart(made, shown(config["seed"])[TRAIN_ROWS:])


train = trainer(configure, task, quality)
