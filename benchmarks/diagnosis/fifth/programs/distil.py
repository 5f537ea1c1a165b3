"""Distillation: a small student learns from few labels and from a large teacher that has seen many."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

import steadyrun
from diagnosis.fifth.objectives_loop import Objective, assemble, declared, drawn, rows, trainer
from diagnosis.harness import Config

FEATURES, CLASSES, TRAIN_ROWS, VAL_ROWS = 20, 10, 1600, 800


def points(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """Points of ten curved classes that overlap a little."""
    fixed, draw = drawn(17), drawn(seed)
    body = nn.Sequential(nn.Linear(FEATURES, 40), nn.Tanh(), nn.Linear(40, CLASSES))
    with torch.no_grad():
        for each in body.parameters():
            each.copy_(torch.randn(each.shape, generator=fixed) / (3.0 if each.ndim == 2 else 6.0))
        x = torch.randn(count, FEATURES, generator=draw)
        scores = 2 * body(x)
    return x, (scores - torch.empty_like(scores).exponential_(generator=draw).log() * 0.3).argmax(dim=1)


def network(width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Linear(FEATURES, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU()),
        *(nn.Dropout(dropout), nn.Linear(width, CLASSES)),
    )


@cache
def learned_teacher(seed: int) -> nn.Sequential:
    """A teacher that was trained on many labels."""
    torch.manual_seed(1000 + seed)
    x, y = points(5000 + seed, 12000)
    model = network(192, 0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for number in range(700):
        part = slice(number * 128 % 11904, number * 128 % 11904 + 128)
        optimizer.zero_grad()
        cross_entropy(model(x[part]), y[part]).backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


class Loss(Objective):
    """The cross-entropy with the labels, and the divergence from what the teacher says."""

    teacher: nn.Module

    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        x, y = batch
        bug, config = self.bug, self.config
        alpha, heat = config["alpha"], config["temperature"]
        with torch.set_grad_enabled(bug == "teacher-in-optimizer" and model.training):
            told = self.teacher(x)
        scores = model(x)
        soft, hard = self.soft(scores, told, heat), cross_entropy(scores, y)
        if model.training:
            agree = (scores.argmax(dim=1) == told.argmax(dim=1)).float().mean()
            self.keep(soft_loss=soft, hard_loss=hard, teacher_agreement=agree)
        return alpha * soft + (1 - alpha) * hard

    def soft(self, scores: Tensor, told: Tensor, heat: float) -> Tensor:
        bug = self.bug
        if bug == "teacher-classes-reordered":
            told = told.roll(3, 1)
        if bug == "teacher-of-other-rows":
            told = told.roll(1, 0)
        if self.config["soft"] == "logits":
            return mse_loss(scores, told)
        if bug == "probabilities-for-logits":
            told = told.softmax(dim=1)
        own = log_softmax(scores / (1.0 if bug == "teacher-temperature-only" else heat), dim=1)
        if bug == "student-not-in-logarithms":
            own = own.exp()
        goal = softmax(told / (1.0 if bug == "student-temperature-only" else heat), dim=1)
        square = 1.0 if bug == "temperature-not-squared" else heat**2
        if bug == "softmax-over-batch":
            goal = softmax(told / heat, dim=0)
        if bug == "arguments-swapped":
            return kl_div(goal, own, reduction="batchmean") * square
        loss = kl_div(own, goal, reduction="batchmean") * square
        return -loss if bug == "soft-sign" else loss


@cache
def training(seed: int, labelled: float) -> tuple[Tensor, Tensor]:
    """Rows whose labels are right in a part of the cases only; the others were guessed."""
    x, y = points(seed, TRAIN_ROWS)
    draw = drawn(seed + 5)
    guessed = torch.rand(TRAIN_ROWS, generator=draw) > labelled
    return x, torch.where(guessed, torch.randint(CLASSES, (TRAIN_ROWS,), generator=draw), y)


def batches(config: Config) -> Iterator[list[Tensor]]:
    x, y = training(config["seed"], config["labels_right"])
    return ([x[chosen], y[chosen]] for chosen in rows(TRAIN_ROWS, config))


def validation(config: Config) -> list[list[Tensor]]:
    x, y = points(config["seed"] + 400, VAL_ROWS)
    return [list(part) for part in zip(x.split(100), y.split(100), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 700, "lr_max": 2e-3, "batch_size": 50, "temperature": 3.0, "alpha": 0.8, "soft": "kl"}
    config = declared("distil", bug, seed, changes, **own, labels_right=0.7, width=64)
    return config | {"alpha-of-0": {"alpha": 0.0}, "alpha-of-20": {"alpha": 20.0}}.get(bug or "", {})


def task(config: Config) -> steadyrun.Task:
    bug, loss_fn = config["bug"], Loss(config)
    loss_fn.teacher = copy.deepcopy(learned_teacher(config["seed"]))
    torch.manual_seed(config["seed"])
    model: nn.Module = network(config["width"], 0.0)
    if bug == "teacher-at-random":
        loss_fn.teacher = network(192, 0.5).eval().requires_grad_(False)
    if bug == "teacher-in-training-mode":
        loss_fn.teacher.train()
    parameters = list(model.parameters())
    if bug == "teacher-in-optimizer":
        parameters += list(loss_fn.teacher.requires_grad_(True).parameters())
    optimizer = torch.optim.Adam(parameters, lr=config["lr_max"])
    return assemble(config, model, optimizer, loss_fn, batches, validation(config))


def quality(built: steadyrun.Task, config: Config) -> float:
    """How often the student is right on held-out rows."""
    right = [(built.model(x).argmax(dim=1) == y).float() for x, y in validation(config)]
    return float(torch.cat(right).mean())


train = trainer(configure, task, quality)
