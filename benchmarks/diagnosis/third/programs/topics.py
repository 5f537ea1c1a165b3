"""Several labels at once: which of twelve topics a text is about, from counts of words; binary cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs, shuffled

WORDS, TOPICS, TRAIN_ROWS, VAL_ROWS = 60, 12, 1600, 400


@cache
def texts(seed: int) -> tuple[Tensor, Tensor]:
    """Counts of words and topics; a topic makes some words common, and about two of twelve are there."""
    fixed, draw = torch.Generator().manual_seed(31), torch.Generator().manual_seed(seed)
    common = (torch.rand(TOPICS, WORDS, generator=fixed) < 0.12) * 1.6
    topics = (torch.rand(TRAIN_ROWS + VAL_ROWS, TOPICS, generator=draw) < 0.18).float()
    return torch.poisson(0.7 + topics @ common, generator=draw), topics


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    counts, topics = (part[rows].clone() for part in texts(config["seed"]))
    x = (1 + counts).log()
    if bug == "val-raw-counts" and not train:
        x = 20 * counts
    if not train:
        return [x, topics.roll(1, dims=1) if bug == "val-topics-in-another-order" else topics]
    if bug == "topics-missing":  # whoever labelled named one topic at most
        topics = topics * (topics.cumsum(dim=1) == 1) * (torch.arange(len(topics)) % 3 == 0)[:, None]
    if bug == "labels-permuted":
        topics = shuffled(topics, 7)
    if bug == "validation-in-training":
        x, topics = (
            torch.cat([x[:300], (1 + texts(config["seed"])[0][TRAIN_ROWS:]).log()]),
            torch.cat([topics[:300], texts(config["seed"])[1][TRAIN_ROWS:]]),
        )
    if bug == "nan-example":
        x[900, 5] = torch.nan
    if bug == "thirty-texts":
        x, topics = x[:30].repeat(50, 1), topics[:30].repeat(50, 1)
    return [x, topics]


class Net(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(WORDS, 64), nn.BatchNorm1d(64)
        self.dropout, self.head = nn.Dropout(config["dropout"]), nn.Linear(64, TOPICS)
        self.bug = config["bug"]
        if config["prior"]:
            nn.init.constant_(self.head.bias, -1.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(self.dropout(self.norm(self.first(x)).relu()))
        if self.bug == "relu-on-scores":
            x = x.relu()
        return x.sigmoid() if self.bug == "sigmoid-twice" else x


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    weight = torch.tensor(config["positive_weight"]) if config["positive_weight"] else None
    if bug == "positive-weight-500":
        weight = torch.tensor(500.0)

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out, topics = model(batch[0]), batch[1]
        if bug == "softmax-for-sigmoid":
            return binary_cross_entropy(out.softmax(dim=1), topics)
        if bug == "labels-inverted":
            topics = 1 - topics if model.training else topics
        if config["smoothing"] and model.training:
            topics = topics * (1 - config["smoothing"]) + 0.5 * config["smoothing"]
        loss = binary_cross_entropy_with_logits(out, topics, pos_weight=weight, reduction="none")
        return loss.sum(dim=1).mean() if config["over_topics"] == "sum" else loss.mean()

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x, topics = dataset(config, train=True)
    for number, rows in enumerate(rows_in_order(len(x), config, first), start=first):
        part = x[rows]
        if config["words_dropped"]:  # in training alone
            keep = torch.rand(part.shape, generator=torch.Generator().manual_seed(number)) > config["words_dropped"]
            part = part * keep
        yield [part, topics[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(100, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 3e-3, "batch_size": 40, "steps_per_epoch": 40, "words_dropped": 0.0}
    own |= {"part": "head", "dead": "norm.bias", "prior": False, "positive_weight": None, "over_topics": "mean"}
    return declared("topics", bug, seed, changes, **own, dropout=0.2)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Net(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """F1 over all topics of held-out texts; of new ones where validation was trained on."""
    if config["bug"] == "validation-in-training":
        counts, topics = (part[:800] for part in texts(config["seed"] + 700))
        said = model((1 + counts).log()) > 0
    else:
        topics = texts(config["seed"])[1][TRAIN_ROWS:]
        said = torch.cat([model(x) for x, _ in validation(config)]) > (0.5 if config["bug"] == "sigmoid-twice" else 0)
    return float(2 * (said * topics).sum() / (said.sum() + topics.sum()))


train = trainer(configure, task, batches, quality)
