"""LoRA: a small transformer that knows one task is adapted to another; its own weights are frozen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import pairs, shuffled

WORDS, KINDS, LONGEST, WIDTH, PAD, TRAIN_ROWS, VAL_ROWS = 50, 5, 12, 32, 0, 3200, 320


def kind_of(words: Tensor) -> Tensor:
    return torch.randint(KINDS, (WORDS,), generator=drawn(41))[words]


def sentences(count: int, draw: torch.Generator) -> Tensor:
    """Words, padded at the end."""
    words = torch.randint(1, WORDS, (count, LONGEST), generator=draw)
    return words * (torch.arange(LONGEST) < torch.randint(5, LONGEST + 1, (count, 1), generator=draw))


@cache
def corpus(seed: int) -> tuple[Tensor, Tensor]:
    """Sentences, and which of three groups of kinds is most frequent in them."""
    words = sentences(TRAIN_ROWS + VAL_ROWS, drawn(seed))
    group = torch.tensor([0, 1, 2, 0, 1])[kind_of(words)]
    votes = torch.stack([((group == each) & (words != PAD)).sum(dim=1) for each in range(3)], dim=1)
    return words, (votes.float() + torch.tensor([0.2, 0.1, 0.0])).argmax(dim=1)


class Adapted(nn.Module):
    """A linear layer with a frozen matrix and a narrow trained way beside it."""

    def __init__(self, size: int, out: int, config: Config) -> None:
        super().__init__()
        self.base, self.bug = nn.Linear(size, out), config["bug"]
        self.down = nn.Parameter(torch.randn(config["rank"], size) / math.sqrt(size))
        self.up = nn.Parameter(torch.zeros(out, config["rank"]))
        self.scale = (300.0 if self.bug == "adapters-x300" else 1.0) * config["scale"]
        self.dropout = nn.Dropout(config["dropout"])
        if self.bug == "both-factors-zero":
            nn.init.zeros_(self.down)

    def forward(self, x: Tensor) -> Tensor:
        if self.bug == "adapters-not-called":
            return self.base(x)
        beside = self.dropout(x) @ self.down.T @ self.up.T
        return self.base(x) + self.scale * (beside.detach() if self.bug == "cut-off" else beside)


class Body(nn.Module):
    """One block of attention, with or without adapters."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = Adapted(WIDTH, 3 * WIDTH, config), Adapted(WIDTH, WIDTH, config)
        self.wide, self.narrow = Adapted(WIDTH, 64, config), Adapted(64, WIDTH, config)
        self.bug = config["bug"]

    def forward(self, words: Tensor) -> Tensor:
        there = words != PAD
        seen = torch.ones_like(there) if self.bug == "padding-attended" else there
        x = self.words(words) + self.places(torch.arange(LONGEST))
        query, key, value = self.qkv(self.norm1(x)).unflatten(2, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        out = scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None, None])
        x = x + self.proj(out.transpose(1, 2).flatten(2))
        return x + self.narrow(self.wide(self.norm2(x)).relu())


@cache
def checkpoint(seed: int) -> dict[str, Tensor]:
    """The body after it has learned to name the kind of every word."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        plain: Config = {"bug": None, "rank": 1, "scale": 0.0, "dropout": 0.0}
        body, head = Body(plain), nn.Linear(WIDTH, KINDS)
        optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
        draw = drawn(seed + 50)
        for _ in range(80):
            words = sentences(64, draw)
            there = words != PAD
            loss = cross_entropy(head(body(words))[there], kind_of(words)[there])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {name: value for name, value in body.state_dict().items() if not name.endswith((".down", ".up"))}


class Classifier(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body, self.head, self.bug = Body(config), nn.Linear(WIDTH, 3), config["bug"]
        state = checkpoint(config["seed"])
        if self.bug == "base-not-loaded":  # the names have a prefix, and strict=False does not mind
            state = {f"base_model.{name}": value for name, value in state.items()}
        self.body.load_state_dict(state, strict=False)
        for name, each in self.body.named_parameters():
            each.requires_grad_(requires_grad=name.endswith((".down", ".up")) and self.bug != "adapters-frozen")

    def forward(self, words: Tensor) -> Tensor:
        x = self.body(words)[:, 0]
        out = self.head(x)
        return out.softmax(dim=1) if self.bug == "softmax-twice" else out


def make_loss(config: Config) -> Any:
    criterion = nn.CrossEntropyLoss(label_smoothing=config["smoothing"])

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        words, label = batch
        return criterion(model(words), label)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    words, label = (part[:TRAIN_ROWS] for part in corpus(config["seed"]))
    if config["bug"] == "labels-permuted":
        label = shuffled(label, 7)
    for rows in rows_in_order(TRAIN_ROWS, config, first):
        yield [words[rows], label[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    words, label = (part[TRAIN_ROWS:] for part in corpus(config["seed"]))
    if config["bug"] == "val-vocabulary-anew":
        words = torch.where(words == PAD, PAD, (words + 13) % (WORDS - 1) + 1)
    return pairs(80, words, label)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 1e-2, "batch_size": 32, "steps_per_epoch": 100, "num_classes": 3}
    own |= {"part": "body", "init": "pretrained", "pad_id": PAD, "warmup_steps": 20, "rank": 4, "scale": 1.0}
    return declared("adapter", bug, seed, changes, **own, schedule="linear", weight_decay=0.0)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Classifier(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out sentences, prepared as the validation prepares them."""
    return float(torch.cat([model(words).argmax(dim=1) == label for words, label in validation(config)]).float().mean())


train = trainer(configure, task, batches, quality)
