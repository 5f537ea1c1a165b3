"""A variational autoencoder of small black and white pictures of bars."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

SIDE, CODE, WIDTH, TRAIN_ROWS, VAL_ROWS = 8, 6, 64, 1600, 400


@cache
def bars(seed: int) -> Tensor:
    """Pictures of one row and one column, a tenth of the pixels wrong."""
    draw = torch.Generator().manual_seed(seed)
    count, places = TRAIN_ROWS + VAL_ROWS, torch.arange(SIDE)
    row, column = (torch.randint(SIDE, (count, 1, 1), generator=draw) for _ in range(2))
    there = (places[None, :, None] == row) | (places[None, None, :] == column)
    flipped = torch.rand(count, SIDE, SIDE, generator=draw) < 0.04
    return (there ^ flipped).float().flatten(1)


class VAE(nn.Module):
    """An encoder of means and log variances, and a decoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIDE * SIDE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, SIDE * SIDE))
        self.config = config

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        if self.config["bug"] == "cut-off":
            mean, log_variance = mean.detach(), log_variance.detach()
        if self.config["bug"] == "log-of-zero":  # the layer was meant to give the logarithm
            log_variance = log_variance.log()
        code = mean
        if self.training:
            code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def parts_of(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Reconstruction error and divergence in nats, summed over each picture."""
    out, mean, log_variance = model(x)
    wrong = binary_cross_entropy_with_logits(out.float(), x, reduction="none").sum(dim=1)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1)
    return wrong, divergence


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        wrong, divergence = parts_of(model, batch[0])
        weight = {"divergence-x50": 50.0, "divergence-sign": -1.0}.get(bug or "", config["beta"])
        if bug == "wrong-reduction":  # the mean over pixels beside the sum over the code
            wrong = wrong / SIDE**2
        offset = config["constant"]  # what a normalising constant of the likelihood would add
        return (wrong + weight * divergence).mean() + offset

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x = bars(config["seed"])[:TRAIN_ROWS]
    for rows in rows_in_order(len(x), config, first):
        yield [x[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    return [[part] for part in bars(config["seed"])[TRAIN_ROWS:].split(100)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 500, "lr_max": 4e-3, "batch_size": 40, "steps_per_epoch": 40, "part": "decoder"}
    own |= {"dead": "decoder.0.bias", "beta": 1.0, "constant": 0.0, "clip": None, "weight_decay": 0.0}
    return declared("vae", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, VAE(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """The evidence bound of held-out pictures, in nats, with a sampled code."""
    torch.manual_seed(0)
    model.train()
    wrong, divergence = parts_of(model, bars(config["seed"] + 500)[:VAL_ROWS])
    model.eval()
    return -float((wrong + divergence).mean())


train = trainer(configure, task, batches, quality)
