"""Contrastive learning without labels: two noisy views of one example belong together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

FEATURES, NOISE, GROUPS, WIDTH, TRAIN_ROWS, VAL_ROWS = 24, 40, 8, 64, 1600, 400


@cache
def examples(seed: int) -> tuple[Tensor, Tensor]:
    """Points around eight centres, curled into 24 dimensions, and the number of their centre."""
    fixed, draw = torch.Generator().manual_seed(4), torch.Generator().manual_seed(seed)
    centres, sheet = torch.randn(GROUPS, 5, generator=fixed), torch.randn(5, FEATURES, generator=fixed)
    group = torch.randint(GROUPS, (TRAIN_ROWS + VAL_ROWS,), generator=draw)
    spread = 0.35 * torch.randn(len(group), 5, generator=draw)
    return torch.sin(1.5 * (centres[group] + spread) @ sheet), group


def views(x: Tensor, config: Config, draw: torch.Generator) -> list[Tensor]:
    """Two views: each is noisy, has lost some features, and is padded with features that mean nothing."""
    made = []
    for _ in range(2):
        kept = torch.rand(x.shape, generator=draw) > 0.2
        view = x * kept + 0.2 * torch.randn(x.shape, generator=draw)
        made.append(torch.cat([view, 1.5 * torch.randn(len(x), NOISE, generator=draw)], dim=1))
    if config["bug"] == "labels-permuted":  # the second view is of another example
        made[1] = made[1].roll(1, 0)
    if config["bug"] == "same-view":  # augmented once, used twice: the noise tells the pair
        made[1] = made[0]
    return made


class Encoder(nn.Module):
    """The representation, and a projection that the loss sees."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES + NOISE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.projection = nn.Linear(WIDTH, 16)
        self.bug = config["bug"]

    def forward(self, x: Tensor) -> Tensor:
        body = self.body(x)
        if self.bug == "cut-off":
            body = body.detach()
        return self.projection(body)


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        first, second = (model(view) for view in batch)
        first, second = normalize(first, dim=1), normalize(second, dim=1)
        if bug == "no-negatives":
            return 1 - (first * second).sum(dim=1).mean()
        temperature = 50.0 if bug == "temperature-too-high" else config["temperature"]
        logits = first @ second.T / temperature
        loss = cross_entropy(logits, torch.arange(len(first)))
        if bug == "root-of-zero":  # a reward for distance; the root has no slope where a view meets itself
            loss = loss - 0.01 * (first[:, None] - first[None]).square().sum(dim=2).sqrt().mean()
        return loss

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x = examples(config["seed"])[0][:TRAIN_ROWS]
    draw = torch.Generator().manual_seed(config["seed"] + first)
    for rows in rows_in_order(TRAIN_ROWS, config, first):
        if config["bug"] == "same-batch":
            draw.manual_seed(config["seed"])
        yield views(x[rows], config, draw)


def validation(config: Config) -> list[list[Tensor]]:
    draw = torch.Generator().manual_seed(config["seed"] + 7)
    x = examples(config["seed"])[0][TRAIN_ROWS:]
    return [views(part, config, draw) for part in x.split(config["batch_size"])]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 3e-3, "batch_size": 40, "steps_per_epoch": 40, "temperature": 0.2}
    own |= {"part": "body", "dead": "body.2.bias"}
    return declared("contrast", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Encoder(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How often the nearest other held-out example is of the same centre."""
    x, group = (part[TRAIN_ROWS:] for part in examples(config["seed"]))
    draw = torch.Generator().manual_seed(config["seed"] + 8)
    code = normalize(model(views(x, config | {"bug": None}, draw)[0]), dim=1)
    near = (code @ code.T).fill_diagonal_(-2.0).argmax(dim=1)
    return float((group[near] == group).float().mean())


train = trainer(configure, task, batches, quality)
