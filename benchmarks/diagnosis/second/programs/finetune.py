"""An encoder that was trained on one task and is fine-tuned on another: which of two kinds of words prevails."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

WORDS, KINDS, LONGEST, WIDTH, PAD, TRAIN_ROWS, VAL_ROWS = 60, 6, 14, 32, 0, 320, 320


def kind_of(words: Tensor) -> Tensor:
    """The kind of a word; a table that has to be learned."""
    table = torch.randint(KINDS, (WORDS,), generator=torch.Generator().manual_seed(8))
    return table[words]


def sentences(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Words padded at the end, and where there are any."""
    words = torch.randint(1, WORDS, (count, LONGEST), generator=draw)
    there = torch.arange(LONGEST) < torch.randint(5, LONGEST + 1, (count, 1), generator=draw)
    return words * there, there


@cache
def corpus(seed: int) -> tuple[Tensor, Tensor]:
    """Sentences, and whether words of the first three kinds prevail in them."""
    words, there = sentences(TRAIN_ROWS + VAL_ROWS, torch.Generator().manual_seed(seed))
    votes = torch.where(kind_of(words) < 3, 1, -1) * there
    return words, (votes.sum(dim=1) > 0).long()


class Encoder(nn.Module):
    """One layer of attention over the words."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=dropout, batch_first=True)

    def forward(self, words: Tensor, ignored: Tensor) -> Tensor:
        x = self.words(words) + self.places(torch.arange(LONGEST))
        return self.layer(x, src_key_padding_mask=ignored)


@cache
def checkpoint(seed: int) -> dict[str, Tensor]:
    """The encoder after it has learned to name the kind of every word."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body, head = Encoder(0.0), nn.Linear(WIDTH, KINDS)
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
        draw = torch.Generator().manual_seed(seed + 50)
        for _ in range(60):
            words, there = sentences(64, draw)
            loss = cross_entropy(head(body(words, ~there))[there], kind_of(words)[there])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return body.state_dict()


class Classifier(nn.Module):
    """The encoder, the mean over its words, and a new head."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body, self.head = Encoder(config["dropout"]), nn.Linear(WIDTH, 2)
        self.bug = config["bug"]
        if config["init"] == "pretrained" and self.bug != "checkpoint-not-loaded":
            self.body.load_state_dict(checkpoint(config["seed"]))
        if self.bug == "checkpoint-not-loaded":  # the names have a prefix, and strict=False does not mind
            state = {f"encoder.{name}": value for name, value in checkpoint(config["seed"]).items()}
            self.body.load_state_dict(state, strict=False)
        if config["frozen"]:
            self.body.requires_grad_(requires_grad=False)

    def forward(self, words: Tensor) -> Tensor:
        ignored = words == PAD
        if self.bug == "mask-inverted":
            ignored = ~ignored
            ignored[:, -1] = False
        if self.bug == "padding-learned":
            ignored = torch.zeros_like(ignored)
        counts = (~ignored).unsqueeze(2)
        x = self.body(words, ignored)
        x = (x * counts).sum(dim=1) / counts.sum(dim=1)
        if self.bug == "cut-off":
            x = x.detach()
        out = self.head(x)
        return out.softmax(dim=1) if self.bug == "softmax-twice" else out


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out = model(batch[0])
        if config["bug"] == "softmax-over-batch":
            return nn.functional.nll_loss(out.log_softmax(dim=0), batch[1])
        return cross_entropy(out, batch[1], label_smoothing=config["smoothing"] if model.training else 0.0)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    bug = config["bug"]
    words, y = (part[:TRAIN_ROWS] for part in corpus(config["seed"]))
    if bug == "validation-in-training":
        words, y = (torch.cat([part[:160], part[TRAIN_ROWS : TRAIN_ROWS + 160]]) for part in corpus(config["seed"]))
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if bug == "labels-permuted":
        y = y[torch.randperm(len(y), generator=draw)]
    for rows in rows_in_order(len(y), config, first):
        yield [words[rows], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    words, y = (part[TRAIN_ROWS:] for part in corpus(config["seed"]))
    if config["bug"] == "validation-in-training":
        words, y = words[:160], y[:160]
    if config["bug"] == "another-vocabulary":  # validation numbers its words by another file
        words = torch.where(words == PAD, PAD, (words + 20) % (WORDS - 1) + 1)
    return [[*pair] for pair in zip(words.split(80), y.split(80), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 240, "lr_max": 1e-3, "batch_size": 16, "steps_per_epoch": 20, "num_classes": 2}
    own |= {"part": "body.layer", "init": "pretrained", "frozen": False, "pad_id": PAD, "warmup_steps": 20}
    return declared("finetune", bug, seed, changes, **own, schedule="linear", val_every=20)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Classifier(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out sentences, prepared as the validation prepares them."""
    if config["bug"] == "validation-in-training":
        words, y = corpus(config["seed"] + 300)
        return float((model(words).argmax(dim=1) == y).float().mean())
    return float(torch.cat([model(words).argmax(dim=1) == y for words, y in validation(config)]).float().mean())


train = trainer(configure, task, batches, quality)
