"""Retrieval: a query and its document get near places, the other documents of the batch far ones; two towers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import pairs, shuffled

ASKED, WRITTEN, SUBJECTS, WIDTH, PAD, TRAIN_ROWS, VAL_ROWS = 61, 121, 24, 24, 0, 3200, 320


@cache
def corpus(seed: int) -> tuple[Tensor, Tensor]:
    """Queries of up to nine words and documents of up to sixteen, in two languages, about the same three subjects."""
    fixed, draw, count = drawn(51), drawn(seed), TRAIN_ROWS + VAL_ROWS
    subject = torch.rand(count, SUBJECTS, generator=draw).argsort(dim=1)[:, :3]
    found = []
    for words, longest in ((ASKED, 9), (WRITTEN, 16)):
        of_subject = torch.randint(1, words, (SUBJECTS, 3), generator=fixed)
        which = subject.gather(1, torch.randint(3, (count, longest), generator=draw))
        text = of_subject[which, torch.randint(3, (count, longest), generator=draw)]
        length = torch.randint(longest // 2, longest + 1, (count, 1), generator=draw)
        found.append(text * (torch.arange(longest) < length))
    return found[0], found[1]


class Tower(nn.Module):
    """The mean over the words, and two layers."""

    def __init__(self, words: int, config: Config) -> None:
        super().__init__()
        self.words, self.dropout = nn.Embedding(words, 48), nn.Dropout(config["dropout"])
        self.body, self.bug = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, WIDTH)), config["bug"]

    def forward(self, words: Tensor) -> Tensor:
        there = (words != PAD).unsqueeze(2)
        if self.bug == "mask-inverted":
            there = ~there
        if self.bug == "padding-averaged":
            there = torch.ones_like(there)
        x = (self.words(words) * there).sum(dim=1) / there.sum(dim=1).clamp(min=1)
        x = self.body(self.dropout(x))
        return normalize(x, dim=0 if self.bug == "normalised-over-batch" else 1)


class Towers(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.query, self.document = Tower(ASKED, config), Tower(WRITTEN, config)
        self.bug = config["bug"]

    def forward(self, query: Tensor, document: Tensor) -> Tensor:
        """How near every query is to every document."""
        asked, written = self.query(query), self.document(document)
        return asked @ (written.detach() if self.bug == "documents-cut-off" else written).T


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    heat = {"temperature-of-20": 20.0, "temperature-of-0.002": 0.002}.get(bug or "", config["temperature"])

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        near = model(*batch) / heat
        right = torch.arange(len(near))
        if bug == "only-the-right-one":
            return -near.diagonal().mean()
        if bug == "distances-for-nearness":
            near = -near
        if bug == "sigmoid-first":
            near = near.sigmoid()
        return (cross_entropy(near, right) + cross_entropy(near.T, right)) / 2

    return loss_fn


def batches(config: Config, first: int, model: nn.Module) -> Iterator[list[Tensor]]:
    bug = config["bug"]
    query, document = (part[:TRAIN_ROWS] for part in corpus(config["seed"]))
    if bug == "documents-of-others":
        document = shuffled(document, 7)
    if bug == "documents-of-the-next-batch":
        document = document.roll(config["batch_size"], 0)
    if bug == "same-document-everywhere":
        document = document[torch.arange(TRAIN_ROWS) // 400 * 400]
    if bug == "words-cut":  # the vocabulary was made of the first texts: what is rare is unknown
        query, document = (torch.where(part > 6, 1, part) for part in (query, document))
    for number, rows in enumerate(rows_in_order(TRAIN_ROWS, config, first), start=first):
        if config["hard_ones"] and number % 2:  # documents that are near to each other
            with torch.no_grad():
                places = model.document(document)
                rows = (places @ places[rows[0]]).topk(len(rows)).indices
        yield [query[rows], document[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    query, document = (part[TRAIN_ROWS:] for part in corpus(config["seed"]))
    if config["bug"] == "val-words-from-another-list":
        document = torch.where(document == PAD, PAD, (document + 31) % (WRITTEN - 1) + 1)
    return pairs(64, query, document)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 5e-3, "batch_size": 32, "steps_per_epoch": 100, "temperature": 0.1}
    own |= {"part": "query", "dead": "query.body.0.bias", "pad_id": PAD, "hard_ones": False}
    return declared("search", bug, seed, changes, **own, val_every=40, schedule="linear")


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Towers(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """How often the document is among the three nearest of 64, on held-out pairs."""
    right = []
    for query, document in validation(config):
        near = model(query, document)
        right.append((near.topk(3).indices == torch.arange(len(near))[:, None]).any(dim=1))
    return float(torch.cat(right).float().mean())


train = trainer(configure, task, batches, quality)
