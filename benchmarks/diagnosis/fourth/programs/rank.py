"""Learning to rank: of two documents of a query the more relevant gets the higher score; pairs, RMSprop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, rows_in_order, trainer
from diagnosis.third.loop import little, pairs, shuffled, whole

DOCUMENTS, COLUMNS, WANTED, TRAIN_ROWS, VAL_ROWS = 10, 12, 4, 640, 160


@cache
def queries(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """What was asked for, the documents, and how relevant each is (0 to 3, by rank within its query)."""
    fixed, draw, count = drawn(21), drawn(seed), TRAIN_ROWS + VAL_ROWS
    mix = torch.randn(WANTED, COLUMNS, generator=fixed) / WANTED**0.5
    asked = torch.randn(count, WANTED, generator=draw)
    documents = torch.randn(count, DOCUMENTS, COLUMNS, generator=draw)
    fit = (documents * (asked @ mix)[:, None]).sum(dim=2) + documents[..., :3].square().sum(dim=2)
    place = (fit + 0.6 * torch.randn(fit.shape, generator=draw)).argsort(dim=1, descending=True).argsort(dim=1)
    relevance = (place < 1).long() + (place < 3) + (place < 6)
    return asked, documents, relevance


class Scorer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.query, self.document = nn.Linear(WANTED, 48), nn.Linear(COLUMNS, 48)
        self.middle, self.dropout = nn.Linear(48, 48), nn.Dropout(config["dropout"])
        self.out, self.bug = nn.Linear(48, 1), config["bug"]

    def forward(self, asked: Tensor, documents: Tensor) -> Tensor:
        if self.bug == "query-not-used":
            asked = torch.zeros_like(asked)
        x = self.document(documents) + self.query(asked).unsqueeze(1)
        x = x.detach() if self.bug == "cut-off" else x
        x = self.middle(self.dropout(x.relu())).relu()
        score = self.out(x).squeeze(2)
        return score.sigmoid() if self.bug == "scores-squashed" else score


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        asked, documents, relevance = batch
        score = model(asked, documents)
        gap = score[:, :, None] - score[:, None]
        better = relevance[:, :, None] > relevance[:, None]
        if bug == "pairs-reversed":
            better = better.transpose(1, 2)
        if bug == "pairs-of-equals":  # >= counts a document against itself, and both ways
            better = relevance[:, :, None] >= 0
        if bug == "no-pairs-no-mean":  # the mean of a query of equals is that of nothing
            of_query = (softplus(-gap) * better).sum(dim=(1, 2)) / better.sum(dim=(1, 2))
            return of_query.mean()
        return (softplus(-gap) * better).sum() / better.sum().clamp(min=1)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    bug = config["bug"]
    asked, documents, relevance = (part[:TRAIN_ROWS].clone() for part in queries(config["seed"]))
    if bug == "relevance-of-the-next-query":
        relevance = relevance.roll(1, 0)
    if bug == "relevance-in-any-order":  # the lists were sorted on the way, the judgements were not
        relevance = shuffled(relevance.T, 3).T
    if bug == "no-pairs-no-mean":
        relevance[320] = 0
    if bug == "first-is-best":  # judged by its place in the list
        relevance = torch.arange(DOCUMENTS).flip(0).expand_as(relevance)
    for number, rows in enumerate(rows_in_order(TRAIN_ROWS, config, first), start=first):
        batch = [asked[rows], documents[rows], relevance[rows]]
        if config["hard_ones"] and number > 150:  # only documents that are hard to tell apart
            best = batch[2] >= 1
            batch[2] = torch.where(best, batch[2], (torch.arange(DOCUMENTS) % 2).sub(1).expand_as(best))
        yield batch


def validation(config: Config) -> list[list[Tensor]]:
    asked, documents, relevance = (part[TRAIN_ROWS:] for part in queries(config["seed"]))
    if config["bug"] == "val-0-is-best":
        relevance = 3 - relevance
    if config["bug"] == "columns-reversed-in-validation":
        documents = documents.flip(2)
    return pairs(40, asked, documents, relevance)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 2e-3, "batch_size": 16, "steps_per_epoch": 40, "optimizer": "rmsprop"}
    own |= {"part": "middle", "dead": "middle.bias", "weight_decay": 0.0, "clip": None, "hard_ones": False}
    return declared("rank", bug, seed, changes, **own, zero_grad="start")


def task(config: Config) -> steadyrun.Task:
    config = whole(config, configure)
    torch.manual_seed(config["seed"])
    return assemble(config, Scorer(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How many pairs of held-out documents are in the right order; a guess has 0.5."""
    right = []
    for asked, documents, relevance in validation(config):
        score = model(asked, documents)
        relevance = 3 - relevance if config["bug"] == "val-0-is-best" else relevance
        better = relevance[:, :, None] > relevance[:, None]
        gap = score[:, :, None] - score[:, None]
        right.append(((gap > 0).float() + 0.5 * (gap == 0))[better])
    return float(torch.cat(right).mean())


train = trainer(configure, task, batches, quality, Extras(hands_batch=False, declares=little))
