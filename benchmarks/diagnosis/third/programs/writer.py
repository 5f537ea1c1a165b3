"""A tiny language model with accumulated gradients; an average of its weights is what is validated and kept."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs

SIGNS, LENGTH, WIDTH, TRAIN_ROWS, VAL_ROWS = 24, 20, 32, 1600, 200


@cache
def texts(seed: int) -> Tensor:
    """Each sign follows from the two before it by a fixed table, except for one in seven."""
    fixed, draw = torch.Generator().manual_seed(12), torch.Generator().manual_seed(seed)
    table = torch.randint(SIGNS, (SIGNS, 3), generator=fixed)
    signs = [torch.randint(SIGNS, (TRAIN_ROWS + VAL_ROWS,), generator=draw) for _ in range(2)]
    for _ in range(LENGTH - 1):
        chance = torch.randint(SIGNS, signs[0].shape, generator=draw)
        lucky = torch.rand(signs[0].shape, generator=draw) < 1 / 7
        signs.append(torch.where(lucky, chance, table[signs[-1], signs[-2] % 3]))
    return torch.stack(signs, dim=1)


class Writer(nn.Module):
    """One block of attention; the position is learned."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.signs, self.places = nn.Embedding(SIGNS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.head, self.dropout = nn.Linear(WIDTH, SIGNS), nn.Dropout(config["dropout"])
        self.bug = config["bug"]

    def forward(self, signs: Tensor) -> Tensor:
        count = signs.shape[1]
        x = self.signs(signs)
        if self.bug != "places-forgotten":
            x = x + self.places(torch.arange(count))
        query, key, value = self.mixed(self.norm1(x)).chunk(3, dim=2)
        scores = query @ key.transpose(1, 2) / WIDTH**0.5
        later = torch.ones(count, count, dtype=torch.bool).triu(1)
        if self.bug == "mask-transposed":
            later = later.T
        if self.bug != "sees-later-signs":
            scores = scores.masked_fill(later, -1e9)
        chances = scores.softmax(dim=1 if self.bug == "attention-over-queries" else 2)
        x = x + self.dropout(self.out(chances @ value))
        x = x + self.dropout(self.narrow(self.wide(self.norm2(x)).relu()))
        return self.head(self.norm3(x))


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        text = batch[0]
        asked = text[:, :-1] if config["bug"] == "not-moved-on" else text[:, 1:]
        out = model(text[:, :-1]).flatten(0, 1)
        return cross_entropy(out, asked.flatten(), label_smoothing=config["smoothing"] if model.training else 0.0)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    text = texts(config["seed"])[:TRAIN_ROWS]
    if config["bug"] == "signs-numbered-anew":  # training builds its own list of signs
        text = (text * 5) % SIGNS
    if config["bug"] == "one-text":
        text = text[:1].repeat(TRAIN_ROWS, 1)
    for rows in rows_in_order(len(text), config, first):
        yield [text[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(50, texts(config["seed"])[TRAIN_ROWS:])


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 1e-2, "batch_size": 32, "accumulation": 2, "steps_per_epoch": 50}
    own |= {"warmup_steps": 20, "part": "head", "dead": "wide.bias", "ema": 0.97, "vocab_size": SIGNS}
    config = declared("writer", bug, seed, changes, **own)
    return config | {"ema": 0.9998} if bug == "average-too-slow" else config


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    built = assemble(config, Writer(config), make_loss(config), partial(batches, config), validation(config))
    built.average = copy.deepcopy(built.model).requires_grad_(requires_grad=False)
    return built


@torch.no_grad()
def average(built: steadyrun.Task, config: Config) -> dict[str, float]:
    """Move the average a little towards the weights of now."""
    if config["bug"] != "average-never-updated":
        for mean, now in zip(built.average.parameters(), built.model.parameters(), strict=True):
            mean.lerp_(now, 1 - config["ema"])
    return {}


def carried(old: steadyrun.Task, new: steadyrun.Task, config: Config) -> None:
    """The average goes on after a resume."""
    if config["bug"] != "average-lost":
        new.average.load_state_dict(old.average.state_dict())


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How often the likeliest next sign of held-out texts is right, but for the first two."""
    text = texts(config["seed"])[TRAIN_ROWS:]
    return float((model(text[:, :-1]).argmax(dim=2) == text[:, 1:])[:, 1:].float().mean())


EXTRAS = Extras(after=average, carried=carried, validated=lambda built: built.average)
train = trainer(configure, task, batches, quality, EXTRAS)
