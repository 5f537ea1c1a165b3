"""A variational autoencoder of drawn shapes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

import steadyrun
from diagnosis.fifth.objectives_loop import Objective, assemble, declared, pictures, rows, trainer
from diagnosis.harness import Config

SIZE, CODE, TRAIN_ROWS, VAL_ROWS = 12, 8, 2048, 256


@cache
def shown(seed: int) -> Tensor:
    return pictures(seed, TRAIN_ROWS + VAL_ROWS, SIZE)[0].flatten(1)


class Autoencoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIZE**2, 160), nn.ReLU(), nn.Linear(160, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 160), nn.ReLU(), nn.Linear(160, SIZE**2))
        self.bug = config["bug"]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        spread = (0.5 * log_variance).exp()
        if self.bug == "logarithm-for-spread":
            spread = log_variance
        if self.bug == "noise-missing":
            spread = 0 * spread
        code = mean + torch.randn_like(mean) * spread
        if self.bug == "code-not-decoded":
            code = torch.randn_like(code)
        out = self.decoder(code)
        return out.sigmoid() if self.bug == "sigmoid-twice" else out, mean, log_variance


class Loss(Objective):
    """Reconstruction and divergence; the weight of the divergence may depend on how many steps there were."""

    seen = 0

    def weight(self, train: bool) -> float:
        self.seen += train
        progress = self.seen / self.config["total_steps"]
        factor = {
            "constant": 1.0,
            "warm-up": min(1.0, 2 * progress),
            "cyclical": min(1.0, 2 * (4 * progress % 1.0)),
        }[self.config["kl_schedule"]]
        factor = factor if train else 1.0
        return factor * self.config["beta"] * (80.0 if self.bug == "kl-x80" else 1.0)

    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        (x,) = batch
        out, mean, log_variance = model(x)
        each = -0.5 * (1 + log_variance - mean.square() - log_variance.exp())
        if self.config["free_nats"]:
            each = each.mean(dim=0).clamp(min=self.config["free_nats"]).expand_as(each)
        divergence = each.sum(dim=1).mean()
        recon = self.recon(out, x)
        weight = self.weight(model.training)
        if model.training:
            self.keep(recon=recon, kl=divergence, kl_weight=torch.tensor(weight))
        if self.bug == "kl-sign":
            weight = -weight
        if self.bug == "kl-forgotten":
            weight = 0.0
        return recon + weight * divergence

    def recon(self, out: Tensor, x: Tensor) -> Tensor:
        if self.bug == "pixels-averaged":
            return binary_cross_entropy_with_logits(out, x)
        if self.config["likelihood"] == "gaussian":
            return mse_loss(out, x, reduction="sum") / len(x) / (2 * 0.2**2)
        return binary_cross_entropy_with_logits(out, x, reduction="sum") / len(x)


def batches(config: Config) -> Iterator[list[Tensor]]:
    x = shown(config["seed"])[:TRAIN_ROWS]
    return ([x[chosen]] for chosen in rows(TRAIN_ROWS, config))


def validation(config: Config) -> list[list[Tensor]]:
    return [[part] for part in shown(config["seed"])[TRAIN_ROWS:].split(64)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 700, "lr_max": 2e-3, "batch_size": 64, "beta": 1.0, "kl_schedule": "constant"}
    return declared("vae", bug, seed, changes, **own, free_nats=0.0, likelihood="bernoulli")


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Autoencoder(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr_max"])
    return assemble(config, model, optimizer, Loss(config), batches, validation(config))


def quality(built: steadyrun.Task, config: Config) -> float:
    """The evidence bound of held-out pictures, with unit weight and noise as it should be; not below -1000."""
    torch.manual_seed(0)
    x: Tensor = shown(config["seed"])[TRAIN_ROWS:]
    model: Any = built.model
    mean, log_variance = model.encoder(x).chunk(2, dim=1)
    out = model.decoder(mean + torch.randn_like(mean) * (0.5 * log_variance).exp())
    out = out.sigmoid() if config["bug"] == "sigmoid-twice" else out
    kept = {**config, "bug": None}
    recon = Loss(kept).recon(out, x)
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(dim=1).mean()
    bound = float(-recon - divergence)
    return max(bound, -1000.0) if bound == bound else bound


train = trainer(configure, task, quality)
