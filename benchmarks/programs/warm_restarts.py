"""Shapes with a plain MLP and a cosine that restarts, as declared, after 100 and after 300 steps."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from shapes import CLASSES, draw
from torch import nn

import steadyrun

STEPS = 700
BATCH = 64
LR = 2e-3


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    pictures, labels = draw(4096, seed)
    val_pictures, val_labels = draw(512, seed + 1000)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=100, T_mult=2, eta_min=1e-5)
    config = {
        "seed": seed,
        "lr_max": LR,
        "lr_min": 1e-5,
        "schedule": "cosine-warm-restarts",
        "total_steps": STEPS,
        "batch_size": BATCH,
        "num_classes": CLASSES,
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(STEPS):
            rows = torch.randint(len(labels), (BATCH,))
            loss = nn.functional.cross_entropy(model(pictures[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(loss, batch=(pictures[rows], labels[rows]))
            if step % 100 == 99:
                with torch.no_grad():
                    val_loss = nn.functional.cross_entropy(model(val_pictures), val_labels)
                run.val(val_loss, batches=[(val_pictures, val_labels)])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
