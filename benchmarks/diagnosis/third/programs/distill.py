"""Knowledge distillation: a small student learns from the soft answers of a trained teacher; few labels are known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, little, pairs, shuffled, whole

WIDTH, KINDS, TRAIN_ROWS, VAL_ROWS, LEVEL, SPREAD = 20, 6, 2400, 400, 50.0, 12.0


@cache
def examples(seed: int) -> tuple[Tensor, Tensor]:
    """Inputs in their own units; a fixed curved rule gives the kind."""
    fixed, draw = torch.Generator().manual_seed(21), torch.Generator().manual_seed(seed)
    one, two = torch.randn(WIDTH, 24, generator=fixed) / 6, torch.randn(24, KINDS, generator=fixed)
    x = torch.randn(TRAIN_ROWS + VAL_ROWS, WIDTH, generator=draw)
    return LEVEL + SPREAD * x, ((x @ one).sin() @ two).argmax(dim=1)


def network(width: int, dropout: float = 0.0) -> nn.Sequential:
    first, drop = nn.Linear(WIDTH, width), nn.Dropout(dropout)
    return nn.Sequential(first, nn.ReLU(), drop, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, KINDS))


@cache
def teacher(seed: int) -> nn.Module:
    """A wide network that has learned from many labels."""
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(seed + 30)
        model = network(192)
        x, y = examples(seed + 500)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.5)
        for step in range(250):
            rows = torch.arange(step * 200, step * 200 + 200) % len(x)
            optimizer.zero_grad()
            cross_entropy(model((x[rows] - LEVEL) / SPREAD), y[rows]).backward()
            optimizer.step()
    return model.eval().requires_grad_(requires_grad=False)


@torch.no_grad()
def dataset(config: Config, *, train: bool) -> list[Tensor]:
    """Inputs, the teacher's answers and the labels of one split; an unknown label is -100."""
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    raw, y = (part[rows] for part in examples(config["seed"]))
    x = (raw - LEVEL) / SPREAD
    model = teacher(config["seed"])
    if bug == "teacher-not-loaded":
        with torch.random.fork_rng():
            torch.manual_seed(5)
            model = network(192)
    soft = model(raw if bug == "teacher-sees-raw-inputs" and train else x)
    if bug == "val-not-normalised" and not train:
        x = raw
    if not train:
        return [x, soft, y]
    y = torch.where(torch.arange(len(y)) % 8 == 0, y, -100)
    if bug == "answers-in-another-order":
        soft = shuffled(soft, 7)
    if bug == "teacher-of-other-classes":
        soft = soft.roll(1, dims=1)
    return [x, soft, y]


def make_loss(config: Config) -> Any:
    bug, heat = config["bug"], 300.0 if config["bug"] == "heat-of-300" else config["temperature"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out, goal = model(batch[0]), (batch[1] / heat).softmax(dim=1)
        own = (out / heat).log_softmax(dim=1)
        if bug == "probabilities-for-logarithms":
            own = own.exp()
        soft = kl_div(own, goal, reduction="batchmean")
        if bug != "heat-of-300":
            soft = soft * heat**2
        hard = cross_entropy(out, batch[2], ignore_index=-100) if (batch[2] >= 0).any() else out.sum() * 0
        weight = 0.0 if bug == "soft-term-forgotten" else config["soft_weight"]
        return weight * soft + 0.2 * hard

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x, soft, y = dataset(config, train=True)
    for rows in rows_in_order(len(x), config, first):
        yield [x[rows], soft[rows], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(100, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 600, "lr_max": 5e-3, "batch_size": 48, "steps_per_epoch": 50, "temperature": 3.0}
    return declared("distill", bug, seed, changes, **own, part="5", dead="0.bias", soft_weight=1.0)


def task(config: Config) -> steadyrun.Task:
    config = whole(config, configure)
    torch.manual_seed(config["seed"])
    student = network(48, config["dropout"])
    return assemble(config, student, make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out inputs, by the true labels."""
    x, _, y = dataset(config, train=False)
    return float((model(x).argmax(dim=1) == y).float().mean())


train = trainer(configure, task, batches, quality, Extras(declares=little))
