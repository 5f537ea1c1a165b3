"""A GAN on points of a ring: two optimizers whose losses go up and down for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import steadyrun
from diagnosis.harness import Batches, Config
from diagnosis.healthy.loop import declared, trainer

BATCH, NOISE, WIDTH = 64, 8, 48


def batches(config: Config) -> Iterator[list[Tensor]]:
    draw = torch.Generator().manual_seed(config["seed"])
    while True:
        angle = 2 * math.pi * torch.rand(BATCH, generator=draw)
        ring = torch.stack([angle.cos(), angle.sin()], dim=1)
        yield [ring + 0.05 * torch.randn(BATCH, 2, generator=draw), torch.randn(BATCH, NOISE, generator=draw)]


class Game(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.artist = nn.Sequential(nn.Linear(NOISE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))
        self.critic = nn.Sequential(nn.Linear(2, WIDTH), nn.LeakyReLU(0.2), nn.Linear(WIDTH, 1))

    def forward(self, noise: Tensor) -> Tensor:
        return self.critic(self.artist(noise))


def artist_loss(model: Any, batch: list[Tensor]) -> Tensor:
    judged = model(batch[1])
    return binary_cross_entropy_with_logits(judged, torch.ones_like(judged))


def critic_loss(model: Any, batch: list[Tensor]) -> Tensor:
    real, made = model.critic(batch[0]), model.critic(model.artist(batch[1]).detach())
    return (
        binary_cross_entropy_with_logits(real, torch.ones_like(real))
        + binary_cross_entropy_with_logits(made, torch.zeros_like(made))
    ) / 2


def train_step(task: steadyrun.Task, batch: list[Tensor]) -> Tensor:
    """The critic learns to tell the two apart, then the artist learns to please it."""
    artist, critic = task.optimizers
    critic.zero_grad()
    critic_loss(task.model, batch).backward()
    critic.step()
    artist.zero_grad()
    loss = artist_loss(task.model, batch)
    loss.backward()
    artist.step()
    return loss.detach()


def configure(seed: int, steps: int = 400) -> Config:
    return declared("gan", "gan", seed, steps, weight_decay=0.0, batch_size=BATCH)


def validation(_config: Config) -> list[Any]:
    return []


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Game()
    optimizers = [
        torch.optim.Adam(part.parameters(), lr=config["lr_max"], betas=(0.5, 0.99))
        for part in (model.artist, model.critic)
    ]
    loader = Batches(lambda: batches(config))
    return steadyrun.Task(model, optimizers, artist_loss, train_step=train_step, loader=loader)


train = trainer(configure, task, validation)
