"""A deep autoencoder without any normalisation layer, which its size does not need."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import torch
from shapes import draw
from torch import nn

import steadyrun

STEPS = 800
BATCH = 64
LR = 1e-3


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    pictures, _ = draw(4096, seed, noise=0.1)
    val_pictures, _ = draw(512, seed + 1000, noise=0.1)
    pictures, val_pictures = pictures.flatten(1), val_pictures.flatten(1)
    widths = [256, 128, 64, 16, 64, 128, 256]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.997)
    config = {
        "seed": seed,
        "lr_max": LR,
        "schedule": "exponential",
        "total_steps": STEPS,
        "batch_size": BATCH,
        "reduction": "mean",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(STEPS):
            batch = pictures[torch.randint(len(pictures), (BATCH,))]
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(loss, batch=batch)
            if step % 100 == 99:
                with torch.no_grad():
                    run.val(nn.functional.mse_loss(model(val_pictures), val_pictures), batches=[val_pictures])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
