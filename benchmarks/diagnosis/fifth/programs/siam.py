"""Self-distillation without negatives: a predictor guesses what a slow copy of the network makes of another view."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import steadyrun
from diagnosis.fifth.objectives_loop import Objective, assemble, declared, plain_step, trainer
from diagnosis.fifth.programs.contrast import batches, encoder, nearest, validation
from diagnosis.harness import Config

WIDTH = 32


class Twins(nn.Module):
    """The network that learns, its predictor, and the slow copy."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bug = config["bug"]
        self.online = nn.Sequential(encoder(), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, WIDTH))
        self.predictor = nn.Sequential(nn.Linear(WIDTH, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, WIDTH))
        self.target = copy.deepcopy(self.online).requires_grad_(False) if config["ema_decay"] else self.online

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is predicted, and what is to be predicted."""
        place = self.online(x)
        guess = place if self.bug in ("no-predictor", "neither-stop-nor-predictor") else self.predictor(place)
        goal = self.target(x)
        stops = self.bug not in ("no-stop-gradient", "neither-stop-nor-predictor")
        return guess, goal.detach() if stops else goal


class Loss(Objective):
    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        (guess, goal), (other_guess, other_goal) = (model(each) for each in batch)
        if self.bug == "goal-of-the-same-view":
            goal, other_goal = other_goal, goal
        near = (normalize(guess, dim=1) * normalize(other_goal, dim=1)).sum(dim=1).mean()
        far = (normalize(other_guess, dim=1) * normalize(goal, dim=1)).sum(dim=1).mean()
        if model.training:
            self.keep(similarity=(near + far) / 2, embedding_std=normalize(guess, dim=1).std(dim=0).mean())
        return 2 - near - far


def step(task: steadyrun.Task, batch: list[Tensor]) -> Tensor:
    """One optimizer step, then the slow copy follows."""
    loss = plain_step(task, batch)
    model: Any = task.model
    loss_fn: Any = task.loss_fn
    decay = 1.0 if loss_fn.bug == "target-never-updated" else loss_fn.config["ema_decay"]
    if model.target is not model.online:
        with torch.no_grad():
            for slow, now in zip(model.target.parameters(), model.online.parameters(), strict=True):
                slow.lerp_(now, 1 - decay)
    return loss


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 450, "lr_max": 2e-3, "batch_size": 48, "ema_decay": 0.97}
    return declared("siam", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Twins(config)
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=config["lr_max"])
    return assemble(config, model, optimizer, Loss(config), batches, validation(config), step)


def quality(built: steadyrun.Task, config: Config) -> float:
    """How often the nearest neighbours have the right class, among held-out pictures."""
    model: Any = built.model
    return nearest(model.online, config["seed"])


train = trainer(configure, task, quality)
