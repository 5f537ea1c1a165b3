"""A small classifier in several styles of loop: where gradients are zeroed, what is unused, how it is validated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.harness import Batches, Config, split_decay
from diagnosis.healthy.loop import declared, step_of, trainer
from diagnosis.healthy.objectives import FEATURES, GROUPS, WIDTH, mixture

ROWS = 2000


def table(config: Config, seed: int, count: int) -> tuple[Tensor, Tensor]:
    if config["kind"] != "imbalance":
        return mixture(seed, count)
    x, y = mixture(seed, 6 * count)  # 95 rows of one class to 5 of the others
    keep = (y == 0) | (torch.rand(len(y), generator=torch.Generator().manual_seed(seed)) < 0.0075)
    return x[keep][:count], y[keep][:count]


def batches(config: Config) -> Iterator[list[Tensor]]:
    x, y = table(config, config["seed"], ROWS)
    size, draw = min(config["batch_size"], len(x)), torch.Generator().manual_seed(config["seed"])
    while True:
        order = torch.randperm(len(x), generator=draw) if config["shuffle"] else torch.arange(len(x))
        for begin in range(0, len(x) - size + 1, size):
            rows = order[begin : begin + size]
            yield [x[rows], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    drawn = config["drawn_at"] if config["kind"] == "random-validation" else 0
    return [list(table(config, config["seed"] + 300 + drawn, 400))]


class Net(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config["dropout"])
        self.body = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.head = nn.Linear(WIDTH, GROUPS)
        if config["kind"] == "unused-pooler":  # part of every checkpoint of its family, and not needed here
            self.pooler = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(x)))


def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def looks_in_between(config: Config) -> Any:
    """A step, and now and then a look at its batch in eval mode, without gradients."""

    def train_step(task: steadyrun.Task, batch: Any) -> Tensor:
        loss, _ = step_of(task, batch, config)
        if task.step % 7 == 0:
            with torch.no_grad():
                task.model.eval()
                loss_fn(task.model, batch)
                task.model.train()
        return loss

    return train_step


def configure(seed: int, kind: str, steps: int = 300, **changes: Any) -> Config:
    more = {"batch_size": 40, "shuffle": True, "dropout": 0.0, "num_classes": GROUPS} | changes
    return declared("tabular", kind, seed, steps, **more)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Net(config)
    optimizer = torch.optim.AdamW(split_decay(model, config["weight_decay"]), lr=config["lr_max"])
    built = steadyrun.Task(
        model, optimizer, loss_fn, loader=Batches(partial(batches, config)), val_loader=validation(config)
    )
    if config["kind"] == "looks-in-between":
        built.train_step = looks_in_between(config)
    return built


train = trainer(configure, task, validation)
