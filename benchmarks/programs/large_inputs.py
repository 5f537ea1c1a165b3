"""A binary classifier on raw readings around a thousand, with a learning rate that suits them."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import steadyrun

STEPS = 1000
BATCH = 64
LR = 3e-4


def readings(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten sensors around 1000; whether the machine fails depends on how some of them differ."""
    generator = torch.Generator().manual_seed(seed)
    values = 1000 + 300 * torch.randn(count, 10, generator=generator)
    risk = (values[:, 0] - values[:, 1]) / 300 + ((values[:, 2] - 1000) / 300).abs() - 0.8
    return values, (risk + 0.2 * torch.randn(count, generator=generator) > 0).float()


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    values, failed = readings(4000, seed)
    val_values, val_failed = readings(500, seed + 1000)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    bce = nn.BCEWithLogitsLoss()
    config = {
        "seed": seed,
        "lr_max": LR,
        "schedule": "constant",
        "total_steps": STEPS,
        "batch_size": BATCH,
        "reduction": "mean",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer)
        for step in range(STEPS):
            rows = torch.randint(len(failed), (BATCH,))
            loss = bce(model(values[rows]).squeeze(1), failed[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(values[rows], failed[rows]))
            if step % 100 == 99:
                with torch.no_grad():
                    val_loss = bce(model(val_values).squeeze(1), val_failed)
                run.val(val_loss, batches=[(val_values, val_failed)])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
