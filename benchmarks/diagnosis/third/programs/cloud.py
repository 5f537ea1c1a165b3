"""A net for clouds of points: which of five figures, whatever the order of the points; a maximum over them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs, shuffled

POINTS, FIGURES, TRAIN_ROWS, VAL_ROWS = 24, 5, 1200, 300


@cache
def clouds(seed: int) -> tuple[Tensor, Tensor]:
    """Points of a ring, a disc, a line, a cross and two heaps, turned, stretched and far from the origin."""
    draw, count = torch.Generator().manual_seed(seed), TRAIN_ROWS + VAL_ROWS
    kind = torch.randint(FIGURES, (count,), generator=draw)
    angle, away = 6.283 * torch.rand(count, POINTS, generator=draw), torch.rand(count, POINTS, generator=draw)
    along, side = 2 * away - 1, (torch.rand(count, POINTS, generator=draw) < 0.5).float()
    ring, disc = torch.stack([angle.cos(), angle.sin()], dim=2), torch.stack([angle.cos(), angle.sin()], dim=2)
    disc = disc * away.sqrt().unsqueeze(2)
    line, cross = torch.stack([along, 0 * along], dim=2), torch.stack([along * side, along * (1 - side)], dim=2)
    heaps = torch.stack([2 * side - 1, 0 * side], dim=2)
    points = torch.stack([ring, disc, line, cross, heaps], dim=1)[torch.arange(count), kind]
    points = points + 0.12 * torch.randn(points.shape, generator=draw)
    turn = 6.283 * torch.rand(count, generator=draw)
    matrix = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], dim=1).view(-1, 2, 2)
    scale = 0.7 + 0.6 * torch.rand(count, 1, 1, generator=draw)
    place = 8 * torch.randn(count, 1, 2, generator=draw)
    return scale * points @ matrix + place, kind


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    """Clouds around their centre, and figures."""
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    points, kind = (part[rows].clone() for part in clouds(config["seed"]))
    if not (bug == "val-not-centred" and not train):
        points = points - points.mean(dim=1, keepdim=True)
    if not train:
        return [points, shuffled(kind, 5) if bug == "val-labels-shuffled" else kind]
    if bug == "sorted":
        order = kind.argsort(stable=True)
        points, kind = points[order], kind[order]
    if bug == "labels-permuted":
        kind = shuffled(kind, 7)
    if bug == "one-figure-only":  # a filter for debugging
        points, kind = points[kind == 2].repeat(5, 1, 1), kind[kind == 2].repeat(5)
    if bug == "points-whole-numbers":
        points = points.round()
    return [points, kind]


class PointNet(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(2, 24, 1), nn.Conv1d(24, 48, 1)
        self.norm1, self.norm2 = nn.BatchNorm1d(24), nn.BatchNorm1d(48)
        self.dropout, self.head = nn.Dropout(config["dropout"]), nn.Linear(48, FIGURES)
        self.bug = config["bug"]

    def forward(self, points: Tensor) -> Tensor:
        x = points.transpose(1, 2)
        x = self.norm2(self.second(self.norm1(self.first(x)).relu())).relu()
        best = x.amax(dim=2)
        if self.bug == "maximum-over-batch":
            best = x.amax(dim=0, keepdim=True).expand_as(x).mean(dim=2)
        return self.head(self.dropout(best))


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out = model(batch[0])
        if config["bug"] == "softmax-over-batch":
            return nll_loss(out.log_softmax(dim=0), batch[1])
        return cross_entropy(out, batch[1], label_smoothing=config["smoothing"] if model.training else 0.0)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    points, kind = dataset(config, train=True)
    if config["bug"] == "sorted":
        while True:
            yield from pairs(40, points, kind)
    for number, rows in enumerate(rows_in_order(len(kind), config, first), start=first):
        part = points[rows]
        if config["turned"]:  # in training alone
            turn = 6.283 * torch.rand(len(part), generator=torch.Generator().manual_seed(number))
            matrix = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], dim=1).view(-1, 2, 2)
            part = part @ matrix
        yield [part, kind[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(100, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 5e-3, "batch_size": 40, "num_classes": FIGURES, "steps_per_epoch": 30}
    return declared("cloud", bug, seed, changes, **own, part="second", dead="norm2.bias", turned=False, val_every=40)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, PointNet(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out clouds, by their true figures."""
    kind = clouds(config["seed"])[1][TRAIN_ROWS:]
    said = torch.cat([model(points) for points, _ in validation(config)])
    return float((said.argmax(dim=1) == kind).float().mean())


train = trainer(configure, task, batches, quality)
