"""A recommender: users and items as embeddings, whether one liked the other as a probability."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

USERS, ITEMS, TASTES, PAIRS, VAL_PAIRS = 200, 150, 4, 16000, 4000


@cache
def ratings(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of users and items, no pair twice, and whether the user liked the item."""
    draw = torch.Generator().manual_seed(seed)
    users, items = (torch.randn(count, TASTES, generator=draw) for count in (USERS, ITEMS))
    chosen = torch.randperm(USERS * ITEMS, generator=draw)[: PAIRS + VAL_PAIRS]
    user, item = chosen // ITEMS, chosen % ITEMS
    score = 1.5 * (users[user] * items[item]).sum(dim=1) - 0.5
    return user, item, (torch.rand(len(score), generator=draw) < score.sigmoid()).float()


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    """One split; what some bugs do to it."""
    bug = config["bug"]
    rows = slice(0, PAIRS) if train else slice(PAIRS, None)
    user, item, liked = (part[rows] for part in ratings(config["seed"]))
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if config["rare"]:  # most of what was liked is not in the log
        keep = (liked == 0) | (torch.rand(len(liked), generator=draw) < 0.25)
        user, item, liked = user[keep], item[keep], liked[keep]
    if not train:
        return [user, item, liked]
    if bug == "validation-in-training":  # the log was split after the copy for training was made
        user, item, liked = (
            torch.cat([part[:12000], whole[PAIRS:]])
            for part, whole in zip((user, item, liked), ratings(config["seed"]), strict=True)
        )
    if bug == "labels-permuted":
        liked = liked[torch.randperm(len(liked), generator=draw)]
    if bug == "no-negatives":  # only what was liked is in the export
        liked = torch.ones_like(liked)
    if bug == "identifiers-shifted":  # item numbers from 1 in training, from 0 in validation
        item = (item + 1) % ITEMS
    return [user, item, liked]


class Factors(nn.Module):
    """A product of two embeddings and two biases."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, 8), nn.Embedding(ITEMS, 8)
        self.user_bias, self.item_bias = nn.Embedding(USERS, 1), nn.Embedding(ITEMS, 1)
        for table in self.children():
            nn.init.normal_(table.weight, std=config["start_std"])
        self.dropout = nn.Dropout(config["dropout"])
        self.bug = config["bug"]

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        items = self.items(item)
        if self.bug == "cut-off":
            items = items.detach()
        score = (self.dropout(self.users(user)) * items).sum(dim=1)
        return score + (self.user_bias(user) + self.item_bias(item)).squeeze(1)


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        score, liked = model(*batch[:2]).float(), batch[2]
        return binary_cross_entropy_with_logits(score, liked, reduction=config["reduction"])

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    parts = dataset(config, train=True)
    for rows in rows_in_order(len(parts[0]), config, first):
        yield [part[rows] for part in parts]


def validation(config: Config) -> list[list[Tensor]]:
    parts = dataset(config, train=False)
    return [list(split) for split in zip(*(part.split(config["batch_size"]) for part in parts), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 2e-2, "batch_size": 250, "steps_per_epoch": 64, "weight_decay": 0.5}
    own |= {"part": "items", "start_std": 0.1, "rare": False, "reduction": "mean", "clip": None, "schedule": "linear"}
    return declared("recommend", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Factors(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Area under the curve of held-out pairs that nobody trained on."""
    rows = slice(PAIRS, None)
    if config["bug"] == "validation-in-training":
        rows = slice(12000, PAIRS)
    user, item, liked = (part[rows] for part in ratings(config["seed"]))
    score = model(user, item).float()
    ranks = score.argsort().argsort().double() + 1
    good = float(liked.sum())
    return float(((ranks * liked).sum() - good * (good + 1) / 2) / (good * (len(liked) - good)))


train = trainer(configure, task, batches, quality)
