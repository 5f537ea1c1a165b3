"""House prices from a table: an MLP on targets in thousands that nobody normalised; Adam, no schedule."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import steadyrun

EPOCHS = 25
BATCH = 64
LR = 3e-3


def houses(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Standardised features and a price in thousands, with effects that multiply and some noise."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, 12, generator=generator)
    area, rooms, age, distance = (features[:, i] for i in range(4))
    per_metre = 3.0 + 1.5 * torch.tanh(-distance) + 0.5 * torch.sin(2 * age)
    price = (120 + 35 * area).clamp(min=30) * per_metre * (1 + 0.05 * rooms)
    return features, price + 15 * torch.randn(count, generator=generator)


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    features, prices = houses(2000, seed)
    val_features, val_prices = houses(400, seed + 1000)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    config = {"seed": seed, "lr_max": LR, "schedule": "constant", "batch_size": BATCH, "reduction": "mean"}

    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer)
        for epoch in range(EPOCHS):
            for rows in torch.randperm(len(prices)).split(BATCH):
                loss = nn.functional.mse_loss(model(features[rows]).squeeze(1), prices[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, batch=(features[rows], prices[rows]))
            if epoch % 5 == 4:
                with torch.no_grad():
                    val_loss = nn.functional.mse_loss(model(val_features).squeeze(1), val_prices)
                run.val(val_loss, batches=[(val_features, val_prices)])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
