"""A variational autoencoder of shapes with KL annealing: in between the loss rises, and is meant to."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from shapes import draw
from torch import Tensor, nn

import steadyrun

STEPS = 800
WITHOUT_KL = 200
ANNEALING = 200
BATCH = 64
LR = 1e-3
LATENT = 8


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2 * LATENT))
        self.decode = nn.Sequential(nn.Linear(LATENT, 128), nn.ReLU(), nn.Linear(128, 256))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encode(pictures).chunk(2, dim=1)
        code = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        return self.decode(code).view_as(pictures), mean, log_variance


def loss_of(model: nn.Module, pictures: Tensor, kl_weight: float) -> Tensor:
    """Squared error and KL divergence, summed over a picture, mean over the batch."""
    drawn, mean, log_variance = model(pictures)
    error = (drawn - pictures).pow(2).flatten(1).sum(1)
    kl = 0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(1)
    return (error + kl_weight * kl).mean()


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    pictures, _ = draw(4096, seed, noise=0.1)
    val_pictures, _ = draw(512, seed + 1000, noise=0.1)
    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    config = {
        "seed": seed,
        "lr_max": LR,
        "schedule": "constant",
        "total_steps": STEPS,
        "batch_size": BATCH,
        "reduction": "mean",
        "kl_annealing_steps": ANNEALING,
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            batch = pictures[torch.randint(len(pictures), (BATCH,))]
            kl_weight = min(1.0, max(0, step - WITHOUT_KL) / ANNEALING)
            loss = loss_of(model, batch, kl_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=batch)
            run.log(kl_weight=kl_weight)
            if step % 100 == 99:
                with torch.no_grad():
                    run.val(loss_of(model, val_pictures, kl_weight), batches=[val_pictures])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
