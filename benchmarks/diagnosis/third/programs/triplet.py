"""Metric learning: an anchor is nearer to one of its kind than to another; triplets with a margin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, trainer
from diagnosis.third.loop import assemble, declared, little, shuffled, whole

KINDS, WIDTH, TRAIN_ROWS, VAL_ROWS = 12, 24, 1200, 300


@cache
def things(seed: int) -> tuple[Tensor, Tensor]:
    """Kinds differ in directions that are weak beside the noise, seen through a fixed curved map."""
    fixed, draw = torch.Generator().manual_seed(4), torch.Generator().manual_seed(seed)
    centre = torch.randn(KINDS, 6, generator=fixed)
    mix = torch.randn(16, WIDTH, generator=fixed) / 5
    kind = torch.randint(KINDS, (TRAIN_ROWS + VAL_ROWS,), generator=draw)
    own = centre[kind] + 0.35 * torch.randn(len(kind), 6, generator=draw)
    noise = 1.0 * torch.randn(len(kind), 10, generator=draw)
    return torch.sin(torch.cat([own, noise], dim=1) @ mix) + 0.02 * torch.randn(len(kind), WIDTH, generator=draw), kind


def triplets(x: Tensor, kind: Tensor, size: int, draw: torch.Generator, bug: str | None) -> list[Tensor]:
    """Anchors, others of their kind, and others of another kind."""
    anchor = torch.randint(len(x), (size,), generator=draw)
    order = torch.randint(len(x), (400, size), generator=draw)
    same = kind[order] == kind[anchor]
    near = order.gather(0, (same & (order != anchor)).int().argmax(dim=0)[None])[0]
    far = order.gather(0, (~same).int().argmax(dim=0)[None])[0]
    if bug == "positive-is-the-anchor":
        near = anchor
    if bug == "positives-of-any-kind":
        near = torch.randint(len(x), (size,), generator=draw)
    if bug == "near-and-far-swapped":
        near, far = far, near
    return [x[anchor], x[near], x[far]]


class Embedding(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 96), nn.ReLU(), nn.Dropout(config["dropout"]), nn.Linear(96, 96))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(96, 12))
        self.bug = config["bug"]

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        x = self.head(x.detach() if self.bug == "cut-off" else x)
        return normalize(x, dim=0 if self.bug == "normalised-over-batch" else 1)


def make_loss(config: Config) -> Any:
    bug, margin = config["bug"], config["margin"]

    def distance(one: Tensor, two: Tensor) -> Tensor:
        if bug == "root-of-zero":
            return (one - two).square().sum(dim=1).sqrt()
        return (one - two).square().sum(dim=1)

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        anchor, near, far = (model(part) for part in batch)
        gap = distance(anchor, near) - distance(anchor, far)
        if bug == "far-ignored":
            return distance(anchor, near).mean()
        if config["soft"]:
            return softplus(5 * gap).mean()
        return (gap - margin if bug == "margin-sign" else gap + margin).clamp(min=0).mean()

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    bug = config["bug"]
    x, kind = (part[:TRAIN_ROWS] for part in things(config["seed"]))
    if bug == "tiny-data":
        x, kind = x[:40], kind[:40]
    if bug == "labels-permuted":
        kind = shuffled(kind, 7)
    number = first
    while True:
        draw = torch.Generator().manual_seed(1000 * config["seed"] + (0 if bug == "same-batch" else number))
        batch = triplets(x, kind, config["batch_size"], draw, bug)
        if bug == "root-of-zero" and number % 50 == 20:  # a copy of the anchor is in the data, too
            batch[1] = torch.cat([batch[0][:1], batch[1][1:]])
        yield batch
        number += 1


def validation(config: Config) -> list[list[Tensor]]:
    x, kind = (part[TRAIN_ROWS:] for part in things(config["seed"]))
    return [triplets(x, kind, 200, torch.Generator().manual_seed(1), None)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 600, "lr_max": 3e-3, "batch_size": 64, "steps_per_epoch": 19, "soft": False}
    return declared("triplet", bug, seed, changes, **own, part="head", dead="body.0.bias", margin=0.3, val_every=50)


def task(config: Config) -> steadyrun.Task:
    config = whole(config, configure)
    torch.manual_seed(config["seed"])
    return assemble(config, Embedding(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How often the three nearest of the training data are of a held-out thing's kind."""
    x, kind = things(config["seed"])
    places = model(x)
    if not places.isfinite().all():
        return 1 / KINDS
    near = torch.cdist(places[TRAIN_ROWS:], places[:TRAIN_ROWS]).topk(3, largest=False).indices
    return float((kind[near] == kind[TRAIN_ROWS:, None]).float().mean())


train = trainer(configure, task, batches, quality, Extras(hands_batch=False, declares=little))
