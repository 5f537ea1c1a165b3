"""An actor and a critic on a small grid: find the goal within sixteen moves; policy gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, trainer

SIDE, HORIZON, DISCOUNT = 5, 16, 0.95
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Grid:
    """Many grids at once; whoever finds the goal, or runs out of time, begins anew."""

    def __init__(self, count: int, draw: torch.Generator) -> None:
        self.draw = draw
        self.at, self.goal = self.anywhere(count), self.anywhere(count)
        self.age = torch.zeros(count, dtype=torch.long)

    def anywhere(self, count: int) -> Tensor:
        return torch.randint(SIDE, (count, 2), generator=self.draw)

    def seen(self) -> Tensor:
        places = torch.cat([self.at, self.goal], dim=1)
        return one_hot(places, SIDE).float().flatten(1)

    def move(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards, and where an episode is over."""
        self.at = (self.at + MOVES[action]).clamp(0, SIDE - 1)
        self.age = self.age + 1
        found = (self.at == self.goal).all(dim=1)
        over = found | (self.age >= HORIZON)
        self.at = torch.where(over[:, None], self.anywhere(len(over)), self.at)
        self.goal = torch.where(over[:, None], self.anywhere(len(over)), self.goal)
        self.age = torch.where(over, 0, self.age)
        return found.float() - 0.02, over


class ActorCritic(nn.Module):
    """One body, one head for the moves and one for the value."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.masked, self.floor = config["masked"], -torch.inf if config["bug"] == "log-of-zero" else -1e9
        self.body = nn.Sequential(nn.Linear(4 * SIDE, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.moves, self.value = nn.Linear(48, 4), nn.Linear(48, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        body = self.body(seen)
        moves = self.moves(body)
        if self.masked:
            at = seen.view(-1, 4, SIDE)
            wall = torch.stack([at[:, 1, -1], at[:, 1, 0], at[:, 0, -1], at[:, 0, 0]], dim=1)
            moves = moves.masked_fill(wall > 0, self.floor)
        return moves, self.value(body).squeeze(1)


@torch.no_grad()
def rollouts(config: Config, first: int, model: nn.Module) -> Iterator[list[Tensor]]:
    """What the policy of the moment sees, does and gets, one batch per step."""
    bug = config["bug"]
    draw = torch.Generator().manual_seed(config["seed"] + first)
    grid = Grid(config["batch_size"], draw)
    while True:
        seen, taken, rewards, ends = [], [], [], []
        for _ in range(HORIZON):
            seen.append(grid.seen())
            chances = model(seen[-1])[0].softmax(dim=1)
            taken.append(torch.multinomial(chances, 1, generator=draw).squeeze(1))
            reward, over = grid.move(taken[-1])
            rewards.append(reward * config["reward_scale"])
            ends.append(over)
        after, returns = model(grid.seen())[1], []
        for reward, over in zip(reversed(rewards), reversed(ends), strict=True):
            after = reward + DISCOUNT * after * ~over
            returns.append(after)
        if bug == "returns-reversed":
            returns.reverse()
        yield [torch.cat(seen), torch.cat(taken), torch.cat(returns[::-1])]


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        logits, value = model(batch[0])
        log_chances = logits.log_softmax(dim=1)
        advantage = batch[2] - value.detach()
        if config["normalised"]:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        chosen = log_chances.gather(1, batch[1][:, None]).squeeze(1)
        policy = (chosen * advantage).mean() if bug == "advantage-sign" else -(chosen * advantage).mean()
        entropy = -(log_chances.exp() * log_chances).sum(dim=1).mean()
        weight = 5.0 if bug == "entropy-too-heavy" else config["entropy"]
        return policy + 0.5 * mse_loss(value, batch[2]) - weight * entropy

    return loss_fn


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 5e-3, "batch_size": 16, "steps_per_epoch": 50, "schedule": "constant"}
    own |= {
        "part": "moves",
        "dead": "body.0.bias",
        "entropy": 0.01,
        "reward_scale": 1.0,
        "normalised": False,
        "masked": False,
    }
    return declared("actor", bug, seed, changes, **own, zero_grad="start", weight_decay=0.0)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, ActorCritic(config), make_loss(config), partial(rollouts, config), [])


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Mean discounted reward of two hundred other episodes; a goal that is found at once has 1."""
    grid = Grid(200, torch.Generator().manual_seed(config["seed"] + 900))
    gained, over = torch.zeros(200), torch.zeros(200, dtype=torch.bool)
    for step in range(HORIZON):
        move = torch.multinomial(model(grid.seen())[0].softmax(dim=1), 1, generator=grid.draw).squeeze(1)
        reward, ended = grid.move(move)
        gained += DISCOUNT**step * ((reward > 0) & ~over)
        over |= ended
    return float(gained.mean())


train = trainer(configure, task, rollouts, quality)
