"""A small program for trials: a classifier of noisy clusters, with the mistakes that its config names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import steadyrun

CLASSES, WIDTH, EXAMPLES, BATCH = 4, 12, 512, 32


class Round(torch.autograd.Function):
    """Doubles its input; the backward of a program with the mistake points the wrong way."""

    sign = -1.0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return Round.sign * 2 * grad


class Classifier(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, 32)
        self.blocks = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.drop = nn.Dropout(config["dropout"])
        self.last = nn.Linear(32, CLASSES)
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.first(x * (0.0 if self.config["blind"] else 1.0)))
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        if self.config["own_backward"]:
            hidden = Round.apply(hidden)  # type: ignore[no-untyped-call]
        return self.last(self.drop(hidden))


def data(config: dict[str, Any], seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    centres = torch.randn(CLASSES, WIDTH, generator=generator)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
    return centres[labels] + 0.8 * torch.randn(EXAMPLES, WIDTH, generator=generator), labels


class Loader(list[tuple[Tensor, Tensor]]):
    """Batches, and the dataset that they are from."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]], examples: int) -> None:
        super().__init__(batches)
        self.dataset = range(examples)


DEFAULTS: dict[str, Any] = {
    "lr": 3e-3,
    "weight_decay": 0.01,
    "dropout": 0.0,
    "smoothing": 0.0,
    "clip": 1.0,
    "eps": 1e-8,
    "labels": "right",
    "validation": "alike",
    "same_batch": False,
    "left_out": "",
    "blind": False,
    "own_backward": False,
    "start": 1.0,
    "seed": 1,
}


def task(config: dict[str, Any]) -> steadyrun.Task:
    """The program; what the config does not say is as it should be."""
    config = DEFAULTS | config
    torch.manual_seed(config["seed"])
    model = Classifier(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(config["start"])
    x, y = data(config, 11)
    if config["labels"] == "permuted":
        y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(5))]
    val_x, val_y = data(config, 12)
    if config["validation"] == "renumbered":
        val_y = (val_y + 1) % CLASSES
    batches = [(x[start : start + BATCH], y[start : start + BATCH]) for start in range(0, EXAMPLES, BATCH)]
    batches = [batches[0]] * len(batches) if config["same_batch"] else batches
    out = config["left_out"]
    parameters = [each for name, each in model.named_parameters() if not out or not name.startswith(out)]
    optimizer = torch.optim.AdamW(parameters, lr=config["lr"], weight_decay=config["weight_decay"], eps=config["eps"])

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=config["smoothing"])

    def train_step(task: steadyrun.Task, batch: tuple[Tensor, Tensor]) -> Tensor:
        task.optimizer.zero_grad()
        loss: Tensor = task.loss_fn(task.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if config["clip"] is not None:
            nn.utils.clip_grad_norm_(task.model.parameters(), config["clip"])
        task.optimizer.step()
        return loss

    validation = [(val_x[start : start + 64], val_y[start : start + 64]) for start in range(0, EXAMPLES, 64)]
    loader = Loader(batches * 20, EXAMPLES)
    return steadyrun.Task(
        model, optimizer, loss_fn, train_step=train_step, loader=loader, val_loader=validation, config=config
    )


def raising(config: dict[str, Any]) -> steadyrun.Task:
    """A program whose step raises."""
    built = task(config)
    built.train_step = None
    built.loss_fn = _raise
    return built


def _raise(*_: Any) -> Tensor:
    raise RuntimeError("this loss does not work")
