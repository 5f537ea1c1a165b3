"""Q-learning on a small grid with walls: replayed moves, a target network, and the return of its games in the log."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, smooth_l1_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, trainer
from diagnosis.third.loop import assemble, declared

SIDE, HORIZON, GAMES, DISCOUNT, KEPT = 5, 20, 16, 0.9, 4000
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
WALLS = torch.tensor([[0, 0, 0, 0, 0], [0, 1, 1, 1, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]) > 0


class Grids:
    """Many games at once: walk from anywhere, or from the middle, to a corner; walls end a game."""

    def __init__(self, count: int, draw: torch.Generator, one_start: bool) -> None:
        self.draw, self.one_start = draw, one_start
        self.at, self.age = self.anywhere(count), torch.zeros(count, dtype=torch.long)

    def anywhere(self, count: int) -> Tensor:
        if self.one_start:
            return torch.full((count, 2), SIDE // 2)
        free = (~WALLS).nonzero()
        free = free[(free != SIDE - 1).any(dim=1)]
        return free[torch.randint(len(free), (count,), generator=self.draw)]

    def seen(self) -> Tensor:
        return one_hot(self.at[:, 0] * SIDE + self.at[:, 1], SIDE * SIDE).float()

    def move(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rewards, what is seen next, and which games have ended at the goal or in a wall."""
        self.at = (self.at + MOVES[action]).clamp(0, SIDE - 1)
        self.age = self.age + 1
        found = (self.at == SIDE - 1).all(dim=1)
        hit = WALLS[self.at[:, 0], self.at[:, 1]]
        after, over = self.seen(), found | hit
        again = over | (self.age >= HORIZON)
        self.at = torch.where(again[:, None], self.anywhere(len(again)), self.at)
        self.age = torch.where(again, 0, self.age)
        return found.float() - hit.float() - 0.02, after, over


def network(config: Config) -> nn.Sequential:
    middle = nn.Dropout(config["dropout"])
    return nn.Sequential(nn.Linear(SIDE * SIDE, 48), nn.ReLU(), middle, nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))


@torch.no_grad()
def replayed(config: Config, first: int, model: nn.Module) -> Iterator[list[Tensor]]:
    """Play on, remember, and draw from memory: what was seen, done, and what it is worth by the target network."""
    bug, number = config["bug"], first
    draw = torch.Generator().manual_seed(config["seed"] + first)
    grids, target = Grids(GAMES, draw, config["one_start"]), copy.deepcopy(model)
    memory: list[list[Tensor]] = []
    while True:
        for _ in range(4 if number == first else 1):
            explore = 0.0 if bug == "never-explores" else max(0.1, 1 - number / (0.4 * config["total_steps"]))
            seen = grids.seen()
            lucky = torch.rand(GAMES, generator=draw) < explore
            action = torch.where(lucky, torch.randint(4, (GAMES,), generator=draw), model(seen).argmax(dim=1))
            memory.append([seen, action, *grids.move(action)])
            memory = memory[-KEPT // GAMES :]
        rows = torch.randint(len(memory) * GAMES, (config["batch_size"],), generator=draw)
        seen, action, reward, after, over = (torch.cat(parts)[rows] for parts in zip(*memory, strict=True))
        if bug == "reward-sign":
            reward = -reward
        if bug == "rewards-of-other-moves":
            reward, over = reward.roll(1), over.roll(1)
        discount = 1.3 if bug == "discount-above-1" else 0.0 if bug == "discount-0" else config["discount"]
        best = target(after).min(dim=1).values if bug == "least-for-best" else target(after).max(dim=1).values
        yield [seen, action, config["reward_scale"] * reward + discount * best * ~over]
        number += 1
        if bug != "target-never-synced" and number % config["sync_every"] == 0:
            target.load_state_dict(model.state_dict())


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        values = model(batch[0])
        if config["bug"] == "values-of-all-moves":  # the gather is missing
            return smooth_l1_loss(values, batch[2][:, None].expand_as(values))
        chosen = values.gather(1, batch[1][:, None])
        return smooth_l1_loss(chosen if config["bug"] == "broadcast" else chosen.squeeze(1), batch[2])

    return loss_fn


@torch.no_grad()
def played(model: nn.Module, seed: int, count: int, one_start: bool) -> float:
    """Mean return of games that are played as the model thinks best."""
    grids = Grids(count, torch.Generator().manual_seed(seed), one_start)
    gained, over = torch.zeros(count), torch.zeros(count, dtype=torch.bool)
    for _ in range(HORIZON):
        reward, _, ended = grids.move(model(grids.seen()).argmax(dim=1))
        gained += reward * ~over
        over |= ended
    return float(gained.mean())


def returns(built: steadyrun.Task, config: Config) -> dict[str, float]:
    """The return, every 20 steps."""
    if built.step % 20 != 19:
        return {}
    built.model.eval()
    found = played(built.model, config["seed"] + built.step, 32, config["one_start"])
    built.model.train()
    return {"episodic_return": found}


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 800, "lr_max": 3e-3, "batch_size": 64, "steps_per_epoch": 100, "schedule": "constant"}
    own |= {"part": "5", "dead": "0.bias", "sync_every": 20, "reward_scale": 1.0, "clip": None, "discount": DISCOUNT}
    own |= {"one_start": False}
    return declared("deepq", bug, seed, changes, **own, zero_grad="start", weight_decay=0.0)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, network(config), make_loss(config), partial(replayed, config), [])


def quality(model: nn.Module, config: Config) -> float:
    """Mean return of five hundred games."""
    return played(model, config["seed"] + 9000, 500, config["one_start"])


train = trainer(configure, task, replayed, quality, Extras(after=returns))
