"""Transcription without alignment: symbols from frames, with the CTC loss."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

SYMBOLS, BANDS, LONGEST, FRAMES, TRAIN_ROWS, VAL_ROWS = 6, 10, 5, 20, 800, 160


@cache
def utterances(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Frames, how many of them count, the symbols (from 1 on, padded with 0) and how many there are."""
    fixed, draw = torch.Generator().manual_seed(6), torch.Generator().manual_seed(seed)
    shapes, count = 1.5 * torch.randn(SYMBOLS + 1, BANDS, generator=fixed), TRAIN_ROWS + VAL_ROWS
    counts = torch.randint(2, LONGEST + 1, (count,), generator=draw)
    symbols = torch.randint(1, SYMBOLS + 1, (count, LONGEST), generator=draw)
    symbols = symbols * (torch.arange(LONGEST) < counts[:, None])
    longs = torch.randint(2, 5, (count, LONGEST), generator=draw) * (symbols > 0)
    lengths, frames = longs.sum(dim=1), torch.zeros(count, FRAMES, BANDS)
    for row in range(count):
        spoken = torch.repeat_interleave(symbols[row], longs[row])
        frames[row, : len(spoken)] = shapes[spoken]
    frames = frames + 0.5 * torch.randn(frames.shape, generator=draw)
    return frames, lengths, symbols, counts


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    """One split; what some bugs do to it."""
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    frames, lengths, symbols, counts = (part[rows] for part in utterances(config["seed"]))
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if train and bug == "labels-permuted":
        order = torch.randperm(TRAIN_ROWS, generator=draw)
        symbols, counts = symbols[order], counts[order].clamp(max=2)
    if train and bug == "labels-truncated":  # the transcripts were cut to the length of the first ones
        counts = counts.clamp(max=2)
    if bug == "padding-learned":  # every utterance counts as long as the longest
        lengths = torch.full_like(lengths, FRAMES)
    if train and bug == "impossible-example":  # a recording that breaks off before its transcript
        lengths = lengths.clone()
        lengths[300] = 1
    if bug == "blank-is-a-symbol":  # the symbols count from 0, as the blank does
        symbols = (symbols - 1).clamp(min=0)
    return [frames, lengths, symbols, counts]


class Reader(nn.Module):
    """A convolution, a GRU in both directions and one score per symbol."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ear = nn.Conv1d(BANDS, 24, 3, padding=1)
        self.rnn = nn.GRU(24, 24, batch_first=True, bidirectional=True)
        self.dropout, self.head = nn.Dropout(config["dropout"]), nn.Linear(48, SYMBOLS + 1)
        self.bug = config["bug"]

    def forward(self, frames: Tensor) -> Tensor:
        heard = self.ear(frames.transpose(1, 2)).relu().transpose(1, 2)
        if self.bug == "cut-off":
            heard = heard.detach()
        return self.head(self.dropout(self.rnn(heard)[0]))


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        frames, lengths, symbols, counts = batch
        scores = model(frames).float().log_softmax(dim=2)
        loss: Tensor = ctc_loss(
            scores.transpose(0, 1), symbols, lengths, counts, reduction=config["reduction"], zero_infinity=False
        )
        return loss

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    parts = dataset(config, train=True)
    by_length = parts[1].argsort()
    for number, rows in enumerate(rows_in_order(TRAIN_ROWS, config, first), start=first):
        if config["curriculum"] and number < 200:  # the short ones first
            rows = by_length[rows // 2]
        yield [part[rows] for part in parts]


def validation(config: Config) -> list[list[Tensor]]:
    parts = dataset(config, train=False)
    return [list(split) for split in zip(*(part.split(40) for part in parts), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 400, "lr_max": 4e-3, "batch_size": 20, "steps_per_epoch": 40, "part": "head"}
    own |= {"reduction": "mean", "curriculum": False, "clip": 5.0, "warmup_steps": 30}
    return declared("ctc", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Reader(config), make_loss(config), partial(batches, config), validation(config))


def edits(one: list[int], other: list[int]) -> int:
    """The edit distance of two transcripts."""
    costs = list(range(len(other) + 1))
    for number, symbol in enumerate(one, start=1):
        before, costs[0] = costs[0], number
        for at, against in enumerate(other, start=1):
            before, costs[at] = costs[at], min(costs[at] + 1, costs[at - 1] + 1, before + (symbol != against))
    return costs[-1]


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """One minus the symbol error rate of held-out utterances, read greedily; writing nothing has 0."""
    frames, lengths, symbols, counts = dataset(config | {"bug": None}, train=False)
    best, wrong = model(frames).argmax(dim=2), 0
    for row, (length, count) in enumerate(zip(lengths.tolist(), counts.tolist(), strict=True)):
        read = [int(symbol) for symbol in torch.unique_consecutive(best[row, :length]) if symbol > 0]
        wrong += edits(read, symbols[row, :count].tolist())
    return 1 - wrong / float(counts.sum())


train = trainer(configure, task, batches, quality)
