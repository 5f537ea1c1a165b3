"""A mixture of experts: a gate shares the inputs of several regions out among four small networks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs, shuffled

WIDTH, KINDS, EXPERTS, TRAIN_ROWS, VAL_ROWS = 10, 4, 4, 3200, 400


@cache
def examples(seed: int) -> tuple[Tensor, Tensor]:
    """In each of four regions of the first two numbers, another linear rule for the kind holds."""
    fixed, draw = torch.Generator().manual_seed(8), torch.Generator().manual_seed(seed)
    rules = torch.randn(EXPERTS, WIDTH, KINDS, generator=fixed)
    x = torch.randn(TRAIN_ROWS + VAL_ROWS, WIDTH, generator=draw)
    region = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    scores = torch.einsum("nw,nwk->nk", x, rules[region])
    return x, (scores + 0.2 * torch.randn(scores.shape, generator=draw)).argmax(dim=1)


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    x, y = (part[rows].clone() for part in examples(config["seed"]))
    if bug == "columns-reversed-in-validation" and not train:
        x = x.flip(1)
    if not train:
        return [x, y]
    if bug == "half-of-the-labels-wrong":
        y = torch.where(torch.arange(len(y)) % 2 == 0, shuffled(y, 7), y)
    if bug == "labels-of-the-batch":  # one label for the whole batch, from a variable that is not reset
        y = y[torch.arange(len(y)) // 32 * 32]
    if bug == "nan-example":
        x[77, 3] = torch.nan
    if config["noisy"]:
        y = torch.where(torch.arange(len(y)) % 10 == 0, shuffled(y, 7), y)
    return [x, y]


class Mixture(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        made = [nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, KINDS)) for _ in range(EXPERTS)]
        self.bug = config["bug"]
        self.experts = made if self.bug == "unregistered" else nn.ModuleList(made)
        self.gate, self.dropout = (
            nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, EXPERTS)),
            nn.Dropout(config["dropout"]),
        )

    def shares(self, x: Tensor) -> Tensor:
        """How much each expert has to say about each input."""
        if self.bug == "gate-sees-nothing":
            x = x * 0
        shares = self.gate(x)
        if self.bug == "gate-cut-off":
            shares = shares.detach()
        if self.bug == "first-expert-favoured":
            shares = shares + torch.tensor([25.0, 0.0, 0.0, 0.0])
        return shares.softmax(dim=0 if self.bug == "gate-over-batch" else 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.to(self.gate[0].weight.dtype)
        shares = self.shares(x)
        said = torch.stack([expert(self.dropout(x)) for expert in self.experts], dim=1)
        return (shares.unsqueeze(2) * said).sum(dim=1), shares


def make_loss(config: Config) -> Any:
    weight = 100.0 if config["bug"] == "softness-x10000" else config["softness"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out, shares = model(batch[0])
        sharp = (EXPERTS * shares - 1).square().mean()  # a gate should not decide too soon
        smoothing = config["smoothing"] if model.training else 0.0
        return cross_entropy(out.float(), batch[1], label_smoothing=smoothing) + weight * sharp.float()

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x, y = dataset(config, train=True)
    for rows in rows_in_order(len(x), config, first):
        yield [x[rows], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(100, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 600, "lr_max": 1e-2, "batch_size": 64, "num_classes": KINDS, "steps_per_epoch": 50}
    own |= {"part": "gate", "dead": "experts.0.0.bias", "softness": 0.01, "noisy": False}
    return declared("experts", bug, seed, changes, **own, schedule="linear")


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Mixture(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on held-out inputs."""
    return float(torch.cat([model(x)[0].argmax(dim=1) == y for x, y in validation(config)]).float().mean())


train = trainer(configure, task, batches, quality)
