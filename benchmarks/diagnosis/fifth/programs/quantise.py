"""A vector-quantised autoencoder of drawn shapes: every part of the code is one of a few vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

import steadyrun
from diagnosis.fifth.objectives_loop import Objective, assemble, declared, trainer
from diagnosis.fifth.programs.vae import SIZE, TRAIN_ROWS, batches, shown, validation
from diagnosis.harness import Config

PARTS, WIDTH = 9, 8


class Quantiser(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SIZE**2, 160), nn.ReLU(), nn.Linear(160, PARTS * WIDTH))
        self.book = nn.Embedding(config["codes"], WIDTH)
        self.decoder = nn.Sequential(nn.Linear(PARTS * WIDTH, 160), nn.ReLU(), nn.Linear(160, SIZE**2))
        self.bug = config["bug"]
        nn.init.normal_(self.book.weight, mean=8.0 if self.bug == "codes-far-away" else 0.0, std=0.3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The picture, the vectors of the encoder, the codes in their place, and which codes."""
        found = self.encoder(x).reshape(-1, PARTS, WIDTH)
        far = torch.cdist(found, self.book.weight.expand(len(x), -1, -1))
        which = far.argmax(dim=2) if self.bug == "farthest-code" else far.argmin(dim=2)
        code = self.book(which)
        through = code if self.bug == "not-passed-through" else found + (code - found).detach()
        if self.bug == "latent-not-quantised":
            through = found
        if self.bug == "passed-wrong-way":
            through = code + (found - code).detach()
        return self.decoder(through.flatten(1)), found, code, which


class Loss(Objective):
    """Reconstruction, the codes that follow the encoder, and the encoder that stays near its codes."""

    def __call__(self, model: Any, batch: list[Tensor]) -> Tensor:
        (x,) = batch
        out, found, code, which = model(x)
        recon = mse_loss(out, x)
        book, commit = mse_loss(code, found.detach()), mse_loss(found, code.detach())
        weight = self.config["commitment"] * {"commitment-sign": -1.0, "commitment-x1000": 1000.0}.get(self.bug, 1.0)
        if model.training:
            share = torch.bincount(which.flatten(), minlength=len(model.book.weight)) / which.numel()
            perplexity = (-(share * (share + 1e-9).log()).sum()).exp()
            self.keep(recon=recon, codebook_loss=book, commitment_loss=commit, perplexity=perplexity)
        if self.bug == "codebook-forgotten":
            return recon + weight * commit
        return recon + book + weight * commit


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 700, "lr_max": 2e-3, "batch_size": 64, "codes": 32, "commitment": 0.25}
    return declared("quantise", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Quantiser(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr_max"])
    return assemble(config, model, optimizer, Loss(config), batches, validation(config))


def quality(built: steadyrun.Task, config: Config) -> float:
    """How much of the variance of held-out pictures can be read from their codes alone."""
    model: Any = built.model
    x: Tensor = shown(config["seed"])[TRAIN_ROWS:]
    _, _, code, _ = model(x)
    out = model.decoder(code.flatten(1))
    return float(1 - (out - x).square().mean() / (x - x.mean(dim=0)).square().mean())


train = trainer(configure, task, quality)
