"""A recurrent language model on long texts: sixteen signs at a time, the hidden state goes on to the next chunk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.fourth.loop import assemble, declared, drawn
from diagnosis.harness import Config
from diagnosis.second.loop import Extras, trainer

SIGNS, TOPICS, CHUNK, CHUNKS, WIDTH, ROWS, VAL_ROWS = 22, 4, 12, 8, 48, 320, 64
Batch = dict[str, Tensor]


@cache
def texts(seed: int) -> Tensor:
    """The first sign is a topic, which decides for the whole text which sign follows which; one in eight is chance."""
    fixed, draw = drawn(31), drawn(seed)
    usual = SIGNS - TOPICS
    table = torch.stack([torch.randperm(usual, generator=fixed) for _ in range(TOPICS)]) + TOPICS
    topic = torch.randint(TOPICS, (ROWS + VAL_ROWS,), generator=draw)
    signs = [topic, torch.randint(TOPICS, SIGNS, topic.shape, generator=draw)]
    for _ in range(CHUNK * CHUNKS - 1):
        chance = torch.randint(TOPICS, SIGNS, topic.shape, generator=draw)
        lucky = torch.rand(topic.shape, generator=draw) < 1 / 8
        signs.append(torch.where(lucky, chance, table[topic, signs[-1] - TOPICS]))
    return torch.stack(signs, dim=1)


class Reader(nn.Module):
    """A GRU that remembers where it was; `begin` forgets."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.signs, self.dropout = nn.Embedding(SIGNS, WIDTH), nn.Dropout(config["dropout"])
        self.gru, self.head = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, SIGNS)
        self.bug = config["bug"]
        self.hidden: Tensor | None = None

    def begin(self) -> None:
        self.hidden = None

    def forward(self, signs: Tensor) -> Tensor:
        x = self.dropout(self.signs(signs))
        hidden = None if self.bug == "hidden-never-carried" else self.hidden
        if self.bug == "read-across-the-batch":  # batch_first is forgotten
            out, _ = self.gru(x.transpose(0, 1).contiguous().view(x.shape))
        else:
            out, hidden = self.gru(x, hidden)
            self.hidden = hidden.detach()
        return self.head(self.dropout(out))


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: Reader, batch: Batch) -> Tensor:
        if bool(batch["begins"]):
            model.begin()
        out = model(batch["now"])
        wanted = batch["next"]
        if bug == "softmax-over-time":
            return nn.functional.nll_loss(out.log_softmax(dim=1).flatten(0, 1), wanted.flatten())
        smoothing = config["smoothing"] if model.training else 0.0
        return cross_entropy(
            out.flatten(0, 1), wanted.flatten(), label_smoothing=smoothing, reduction=config["reduction"]
        )

    return loss_fn


def chunks_of(text: Tensor) -> Iterator[Batch]:
    """One chunk after another, and whether it is the first."""
    for number in range(CHUNKS):
        part = text[:, number * CHUNK : (number + 1) * CHUNK + 1]
        yield {"now": part[:, :-1], "next": part[:, 1:], "begins": torch.tensor(number == 0)}


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[Batch]:
    bug, size = config["bug"], config["batch_size"]
    text = texts(config["seed"])[:ROWS]
    if bug == "sixteen-texts":
        text = text[:16].repeat(20, 1)
    if bug == "signs-numbered-anew":
        text = (text * 5) % SIGNS
    epoch, skip = divmod(first, ROWS // size * CHUNKS)
    while True:
        order = torch.randperm(ROWS, generator=drawn(config["seed"] + 1000 * epoch))
        for rows in order[: ROWS // size * size].split(size):
            for number, chunk in enumerate(chunks_of(text[rows])):
                if bug == "rows-shuffled-between-chunks":  # what the hidden state remembers is another text
                    new = torch.randperm(size, generator=drawn(epoch * CHUNKS + number))
                    chunk = chunk | {name: chunk[name][new] for name in ("now", "next")}
                if skip:
                    skip -= 1
                    continue
                yield chunk
        epoch += 1


def validation(config: Config) -> list[Batch]:
    size = config["batch_size"]
    return [chunk for text in texts(config["seed"])[ROWS:].split(size) for chunk in chunks_of(text)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 480, "lr_max": 1e-2, "batch_size": 32, "steps_per_epoch": 80, "vocab_size": SIGNS}
    own |= {"part": "signs", "dead": "head.bias", "clip": 0.5, "reduction": "mean", "schedule": "linear"}
    return declared("chunks", bug, seed, changes, **own, zero_grad="start", causal=True, val_every=48)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Reader(config), make_loss(config), partial(batches, config), validation(config))


def carried(old: steadyrun.Task, new: steadyrun.Task, _config: Config) -> None:
    """The hidden state goes on after a resume."""
    new.model.hidden = old.model.hidden


@torch.no_grad()
def quality(model: Reader, config: Config) -> float:
    """How often the likeliest next sign of held-out texts is right, from the second chunk on."""
    model.begin()
    text = texts(config["seed"])[ROWS:]
    right = [model(chunk["now"]).argmax(dim=2) == chunk["next"] for chunk in chunks_of(text)]
    return float(torch.stack(right[1:]).float().mean())


train = trainer(configure, task, batches, quality, Extras(carried=carried))
