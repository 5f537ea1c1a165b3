"""A tagger: an LSTM in both directions gives every word of a sentence its tag; sentences have many lengths."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs, shuffled

WORDS, TAGS, LONGEST, WIDTH, TRAIN_ROWS, VAL_ROWS, PAD = 60, 5, 16, 20, 1280, 256, 0


@cache
def sentences(seed: int) -> tuple[Tensor, Tensor]:
    """Words and tags; a tag depends on the kinds of the word and of its neighbours. Tag 0 is by far the commonest."""
    draw, count = torch.Generator().manual_seed(seed), TRAIN_ROWS + VAL_ROWS
    words = torch.randint(1, WORDS, (count, LONGEST), generator=draw)
    kind = words % 4
    before = torch.cat([torch.zeros(count, 1, dtype=torch.long), kind[:, :-1]], dim=1)
    length = torch.randint(4, LONGEST + 1, (count,), generator=draw)
    there = torch.arange(LONGEST) < length[:, None]
    after = torch.where(there.roll(-1, dims=1) & (torch.arange(LONGEST) < LONGEST - 1), kind.roll(-1, dims=1), 0)
    tags = torch.where(kind == 3, 1 + (before + 2 * after) % 4, 0)
    tags = torch.where((kind == 2) & (before == 1), 1 + after, tags)
    return torch.where(there, words, PAD), torch.where(there, tags, -100)


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    words, tags = (part[rows].clone() for part in sentences(config["seed"]))
    if not train:
        if bug == "val-vocabulary-anew":
            words = torch.where(words == PAD, PAD, (words * 7) % (WORDS - 1) + 1)
        if bug == "val-tags-of-other-sentences":
            tags = shuffled(tags, 5)
        return [words, tags]
    if bug == "tags-of-the-next-sentence":  # two files, one of them with a header
        tags = tags.roll(1, dims=0)
    if bug == "tags-of-the-next-word":
        tags = tags.roll(1, dims=1)
    if bug == "rare-tags-as-0":  # an older list of tags knows two of the five
        tags = torch.where(tags > 1, 0, tags)
    if bug == "words-cut":  # everything above a small vocabulary is "unknown"
        words = words.clamp(max=6)
    return [words, tags]


class Tagger(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        first = config["bug"] != "time-axis-first"
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=PAD)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=first, bidirectional=True)
        self.dropout, self.head = nn.Dropout(config["dropout"]), nn.Linear(2 * WIDTH, TAGS)
        self.bug = config["bug"]

    def forward(self, words: Tensor) -> Tensor:
        x = self.lstm(self.dropout(self.embed(words)))[0]
        if self.bug == "cut-off":
            x = x.detach()
        x = self.head(self.dropout(x))
        return x.softmax(dim=2) if self.bug == "softmax-twice" else x


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    weight = torch.tensor([0.3, 1.0, 1.0, 1.0, 1.0]) if config["weighted"] else None

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out, tags = model(batch[0]), batch[1]
        if bug == "mask-inverted":
            tags = torch.where(tags < 0, 0, -100)
        if bug == "padding-learned":
            tags = tags.clamp(min=0)
        if bug == "softmax-over-time":
            return nll_loss(out.log_softmax(dim=1).flatten(0, 1), tags.flatten())
        smoothing = config["smoothing"] if model.training else 0.0
        return cross_entropy(
            *(out.flatten(0, 1), tags.flatten(), weight), label_smoothing=smoothing, reduction=config["reduction"]
        )

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    words, tags = dataset(config, train=True)
    if config["curriculum"]:  # short sentences first
        length = (words > 0).sum(dim=1)
        for number, rows in enumerate(rows_in_order(len(words), config, first), start=first):
            cap = 6 + number * 14 // config["total_steps"]
            rows = rows[length[rows] <= cap]
            yield [words[rows], tags[rows]]
    for rows in rows_in_order(len(words), config, first):
        yield [words[rows], tags[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(config["batch_size"] if config["reduction"] == "sum" else 64, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 320, "lr_max": 2e-2, "batch_size": 32, "num_classes": TAGS, "steps_per_epoch": 40}
    own |= {"part": "embed", "dead": "lstm.bias_ih_l0", "weighted": False, "curriculum": False, "pad_id": PAD}
    return declared("tagger", bug, seed, changes, **own, reduction="mean", val_every=40)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Tagger(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy of the words of held-out sentences, those with tag 0 apart from the others."""
    words, tags = (part[TRAIN_ROWS:] for part in sentences(config["seed"]))
    if config["bug"] == "val-vocabulary-anew":
        words = dataset(config, train=False)[0]
    right = model(words).argmax(dim=2) == tags
    return float(right[tags == 0].float().mean() + right[tags > 0].float().mean()) / 2


train = trainer(configure, task, batches, quality)
