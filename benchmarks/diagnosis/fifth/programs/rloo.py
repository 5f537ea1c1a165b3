"""A policy over short words, learned from rewards in groups: GRPO in a plain loop, or RLOO."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.fifth.loop import Built, adamw, declared, run_through
from diagnosis.harness import Config, Log, Record

TASKS, SIGNS, LENGTH = 12, 10, 5
Batch = dict[str, Tensor]


class Policy(nn.Module):
    """A recurrent network that writes five signs for a task."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks, self.signs = nn.Embedding(TASKS, 48), nn.Embedding(SIGNS + 1, 48)
        self.body, self.head = nn.GRU(48, 48, batch_first=True), nn.Linear(48, SIGNS)

    def forward(self, task: Tensor, written: Tensor) -> Tensor:
        """Scores of all signs, each position from those before it."""
        before = torch.cat([torch.full_like(written[:, :1], SIGNS), written[:, :-1]], dim=1)
        x = self.signs(before) + self.tasks(task)[:, None]
        return self.head(self.body(x)[0])


def wanted(task: Tensor) -> Tensor:
    """The word that gets the whole reward."""
    return (3 * task[:, None] + torch.arange(LENGTH) * (1 + task[:, None] % 3)) % SIGNS


def taught() -> Policy:
    """A policy that has seen the right words among many wrong ones."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = Policy()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            task = torch.randint(TASKS, (128,))
            right = wanted(task)
            seen = torch.where(torch.rand(right.shape) < 0.3, right, torch.randint(SIGNS, right.shape))
            loss = cross_entropy(model(task, seen).flatten(0, 1), seen.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


@torch.no_grad()
def written(model: nn.Module, task: Tensor) -> Tensor:
    out = torch.zeros(len(task), LENGTH, dtype=torch.long)
    for place in range(LENGTH):
        scores = model(task, out)[:, place]
        out[:, place] = scores.softmax(dim=1).multinomial(1).squeeze(1)
    return out


def log_chances(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Those of the signs that were written, and the entropy at every place."""
    scores = model(batch["task"], batch["word"]).log_softmax(dim=2)
    return scores.gather(2, batch["word"][..., None]).squeeze(2), -(scores.exp() * scores).sum(dim=2)


def worth(batch: Batch, config: Config) -> Tensor:
    right = (batch["word"] == wanted(batch["task"])).float()
    reward = right.mean(dim=1) if config["partial"] else right.all(dim=1).float()
    bug = config["bug"]
    if bug == "groups-without-variance":  # only a word that is never written gets anything
        reward = (batch["word"] == SIGNS).all(dim=1).float()
    if bug == "reward-negated":
        reward = -reward
    if bug == "rewards-of-other-answers":
        reward = reward.roll(1)
    return reward


@torch.no_grad()
def played(model: nn.Module, config: Config, numbers: dict[str, float]) -> Iterator[Batch]:
    """What the policy wrote, in groups of one task each, with advantages; two steps for each sample."""
    draw, bug = torch.Generator().manual_seed(config["seed"]), config["bug"]
    sampler = copy.deepcopy(model) if bug == "sampler-never-updated" else model
    while True:
        task = torch.randint(TASKS, (config["groups"],), generator=draw).repeat_interleave(config["group"])
        batch = {"task": task, "word": written(sampler, task)}
        batch["before"] = log_chances(sampler, batch)[0]
        reward = worth(batch, config)
        rows = reward.unflatten(0, (-1, config["group"]))
        gain = rows - rows.mean(dim=1, keepdim=True)
        if config["way"] == "rloo":
            gain = gain * config["group"] / (config["group"] - 1)
        else:
            gain = gain / (rows.std(dim=1, keepdim=True) + 1e-4)
        if bug == "advantage-negated":
            gain = -gain
        if bug == "mean-not-subtracted":
            gain = rows + 5.0
        batch["gain"] = gain.flatten()
        numbers.update(
            {
                "reward": float(reward.mean()),
                "reward_std": float(rows.std(dim=1).mean()),
                "frac_reward_zero_std": float((rows.std(dim=1) < 1e-6).float().mean()),
                "advantage_mean": float(gain.mean()),
            }
        )
        for _ in range(config["updates"]):
            yield batch


def make_loss(config: Config, reference: nn.Module, numbers: dict[str, float]) -> Any:
    bug = config["bug"]
    kl_weight = -config["beta"] if bug == "kl-rewarded" else config["beta"]
    softness = (1000.0 if bug == "entropy-x1000" else 1.0) * config["entropy"]

    def loss_fn(model: nn.Module, batch: Batch) -> Tensor:
        own, entropy = log_chances(model, batch)
        with torch.no_grad():
            known = log_chances(reference, batch)[0]
        ratio = (own - batch["before"]).exp()
        gain = batch["gain"][:, None]
        held = ratio.clamp(1 - config["clip_range"], 1 + config["clip_range"])
        kl = ((known - own).exp() - (known - own) - 1).mean()
        with torch.no_grad():
            numbers.update(
                {
                    "kl": float(kl),
                    "entropy": float(entropy.mean()),
                    "clip_fraction": float(((ratio - 1).abs() > config["clip_range"]).float().mean()),
                }
            )
        return -torch.minimum(ratio * gain, held * gain).mean() + kl_weight * kl - softness * entropy.mean()

    return loss_fn


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 3e-3, "schedule": "constant", "groups": 8, "group": 8, "updates": 2}
    own |= {"beta": 0.02, "entropy": 0.002, "clip_range": 0.2, "way": "grpo", "partial": True}
    return declared("rloo", bug, seed, changes, **own)


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model = taught()
    reference = copy.deepcopy(model).requires_grad_(requires_grad=False)
    numbers: dict[str, float] = {}
    loss_fn = make_loss(config, reference, numbers)

    def quality() -> float:
        task = torch.arange(TASKS).repeat_interleave(50)
        return float((written(model, task) == wanted(task)).float().mean())

    built = Built(model, adamw(model, config), loss_fn, played(model, config, numbers), quality)
    built.numbers, built.hands_batch = numbers, False
    return run_through(built, config, folder, record)
