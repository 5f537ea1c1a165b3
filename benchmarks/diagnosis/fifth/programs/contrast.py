"""Contrastive learning on drawn shapes: two views of a picture are near, views of others far."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import steadyrun
from diagnosis.fifth.objectives_loop import (
    CLASSES,
    Objective,
    assemble,
    declared,
    drawn,
    pictures,
    plain_step,
    rows,
    trainer,
)
from diagnosis.harness import Config

SIZE, WIDTH, TRAIN_ROWS, VAL_ROWS = 12, 24, 1536, 384


@cache
def shown(seed: int) -> tuple[Tensor, Tensor]:
    return pictures(seed, TRAIN_ROWS + VAL_ROWS, SIZE)


def view(x: Tensor, draw: torch.Generator) -> Tensor:
    """The pictures shifted, mirrored, brighter or darker on another ground, and with noise."""
    count = len(x)
    x = x.roll([int(each) for each in torch.randint(-2, 3, (2,), generator=draw)], dims=(2, 3))
    flip = torch.rand(count, 1, 1, 1, generator=draw) < 0.5
    x = torch.where(flip, x.flip(3), x)
    flip = torch.rand(count, 1, 1, 1, generator=draw) < 0.5
    x = torch.where(flip, x.flip(2), x)
    light = 0.4 + 1.2 * torch.rand(count, 1, 1, 1, generator=draw)
    ground = torch.rand(count, 1, 1, 1, generator=draw) - 0.5
    return light * x + ground + 0.15 * torch.randn(x.shape, generator=draw)


def views(x: Tensor, draw: torch.Generator, bug: str | None) -> list[Tensor]:
    """Two views of the pictures."""
    if bug == "views-not-augmented":
        return [x, x]
    if bug == "same-view-twice":
        first = view(x, draw)
        return [first, first]
    first, second = view(x, draw), view(x, draw)
    if bug == "views-of-others":
        second = second[torch.randperm(len(second), generator=draw)]
    return [first, second]


def encoder() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU()),
        *(nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(48 * 9, 48)),
    )


class Embedder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = encoder()
        self.projector = nn.Sequential(nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, WIDTH))
        self.bug = config["bug"]
        if config["learned_temperature"]:
            self.log_scale = nn.Parameter(torch.tensor(1 / config["temperature"]).log())

    def forward(self, x: Tensor) -> Tensor:
        code = self.encoder(x)
        place: Tensor = self.projector(code.detach() if self.bug == "encoder-cut-off" else code)
        if self.bug == "normalised-over-batch":
            return normalize(place, dim=0)
        return normalize(place, dim=1)


class Loss(Objective):
    """The cross-entropy of finding the other view among all views of the batch."""

    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        config, bug = self.config, self.bug
        place = model(torch.cat(batch))
        half, count = len(batch[0]), 2 * len(batch[0])
        near = place @ place.T
        if bug == "no-negatives":
            return 1 - near.diagonal(half).mean()
        scale = model.log_scale.exp() if config["learned_temperature"] else 1 / config["temperature"]
        scores = scale * near
        other = (torch.arange(count) + half) % count
        if bug == "distances-for-nearness":
            scores = -scores
        if bug == "positive-is-itself":
            other = torch.arange(count)
        else:
            scores = scores.masked_fill(torch.eye(count, dtype=torch.bool), -1e9)
        if bug == "targets-shifted":
            other = (other + 1) % count
        if bug == "softmax-first":
            scores = scores.softmax(dim=1)
        loss = cross_entropy(scores, other)
        if model.training:
            right = (scores.argmax(dim=1) == other).float().mean()
            temperature = torch.as_tensor(1 / scale)
            self.keep(
                contrastive_accuracy=right, temperature=temperature, positive_similarity=near.diagonal(half).mean()
            )
        return loss


def batches(config: Config) -> Iterator[list[Tensor]]:
    x = shown(config["seed"])[0][:TRAIN_ROWS]
    draw = drawn(config["seed"])
    return (views(x[chosen], draw, config["bug"]) for chosen in rows(TRAIN_ROWS, config))


def validation(config: Config) -> list[list[Tensor]]:
    """Views of other pictures in batches of the same size, since the loss depends on it."""
    draw = drawn(config["seed"] + 77)
    parts = shown(config["seed"])[0][TRAIN_ROWS:].split(config["batch_size"])
    return [views(part, draw, config["bug"]) for part in parts[:24] if len(part) == config["batch_size"]]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 2e-3, "batch_size": 48, "temperature": 0.2, "learned_temperature": False}
    config = declared("contrast", bug, seed, changes, **own)
    chosen: dict[str, Config] = {
        "temperature-x1000": {"temperature": 200.0},
        "batch-of-one": {"batch_size": 1},
        "batch-of-two": {"batch_size": 2},
    }
    return config | chosen.get(bug or "", {})


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Embedder(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr_max"])
    return assemble(config, model, optimizer, Loss(config), batches, validation(config), plain_step)


def nearest(encode: nn.Module, seed: int) -> float:
    """How often the nearest five of 1024 pictures are of the class of a held-out one: all in views."""
    x, kind = shown(seed)
    draw = drawn(13)
    known, asked = encode(view(x[:1024], draw)), encode(view(x[TRAIN_ROWS:], draw))
    best = (normalize(asked, dim=1) @ normalize(known, dim=1).T).topk(5).indices
    votes = nn.functional.one_hot(kind[:1024][best], CLASSES).sum(dim=1)
    return float((votes.argmax(dim=1) == kind[TRAIN_ROWS:]).float().mean())


def quality(built: steadyrun.Task, config: Config) -> float:
    """How often the nearest neighbours have the right class, among held-out pictures."""
    model: Any = built.model
    return nearest(model.encoder, config["seed"])


train = trainer(configure, task, quality)
