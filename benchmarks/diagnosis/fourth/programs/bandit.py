"""A contextual bandit: six arms, a policy by gradient and a value as baseline; nothing is ever seen twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, trainer

ARMS, COLUMNS = 6, 8


def worth(x: Tensor) -> Tensor:
    """What every arm is worth on average."""
    fixed = drawn(61)
    ways, bends = torch.randn(COLUMNS, ARMS, generator=fixed), torch.randn(COLUMNS, ARMS, generator=fixed)
    return torch.tanh(x @ ways / 2) + 0.5 * torch.cos(x @ bends / 2)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(COLUMNS, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.arms, self.value = nn.Linear(64, ARMS), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return self.arms(x), self.value(x).squeeze(1)


@torch.no_grad()
def played(config: Config, first: int, model: nn.Module) -> Iterator[list[Tensor]]:
    """Contexts, the arms that the policy has drawn, and what they gave."""
    bug, number = config["bug"], first
    while True:
        draw = drawn(7919 * config["seed"] + (0 if bug == "same-world" else number))
        x = torch.randn(config["batch_size"], COLUMNS, generator=draw)
        chances = model(x)[0].softmax(dim=1)
        arm = chances.multinomial(1, generator=draw).squeeze(1)
        reward = worth(x).gather(1, arm[:, None]).squeeze(1)
        reward = reward + config["noise"] * torch.randn(len(reward), generator=draw)
        if bug == "reward-sign":
            reward = -reward
        if bug == "rewards-of-other-arms":
            reward = reward.roll(1)
        if bug == "rewards-x1e5":
            reward = 1e5 * reward
        yield [x, arm, config["reward_scale"] * reward]
        number += 1


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    softness = 30.0 if bug == "entropy-x3000" else config["entropy"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        x, arm, reward = batch
        scores, value = model(x)
        log_chance = scores.log_softmax(dim=1)
        chosen = (
            log_chance.max(dim=1).values if bug == "chance-of-the-likeliest" else log_chance.gather(1, arm[:, None])
        )
        chosen = chosen.reshape(-1)
        gain = reward - value.detach()
        if bug == "gain-not-centred":  # rewards are all far above zero, and nothing is subtracted
            gain = reward + 20.0
        entropy = -(log_chance.exp() * log_chance).sum(dim=1).mean()
        return -(gain * chosen).mean() + config["value_weight"] * mse_loss(value, reward) - softness * entropy

    return loss_fn


@torch.no_grad()
def scored(model: nn.Module, seed: int, count: int) -> float:
    """How much of what the best arms give the likeliest arms give, above chance."""
    x = torch.randn(count, COLUMNS, generator=drawn(seed))
    given = worth(x)
    got = given.gather(1, model(x)[0].argmax(dim=1, keepdim=True)).mean()
    return float((got - given.mean()) / (given.max(dim=1).values.mean() - given.mean()))


def returns(built: steadyrun.Task, config: Config) -> dict[str, float]:
    """The score, every 25 steps."""
    return {"score": scored(built.model, config["seed"] + built.step, 200)} if built.step % 25 == 24 else {}


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 800, "lr_max": 3e-3, "batch_size": 64, "steps_per_epoch": 100, "schedule": "constant"}
    own |= {"part": "arms", "dead": "body.0.bias", "clip": 0.5, "entropy": 0.01, "value_weight": 0.5, "noise": 0.3}
    return declared("bandit", bug, seed, changes, **own, reward_scale=1.0, weight_decay=0.0)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Policy(), make_loss(config), partial(played, config), [])


def quality(model: nn.Module, config: Config) -> float:
    return scored(model, config["seed"] + 90000, 2000)


train = trainer(configure, task, played, quality, Extras(after=returns))
