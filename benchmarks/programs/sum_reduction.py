"""A classifier whose loss is the sum over the batch, declared as such: loss and gradient are large and healthy."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from shapes import CLASSES, draw
from torch import nn

import steadyrun

STEPS = 500
BATCH = 32
LR = 2e-3


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    pictures, labels = draw(4096, seed)
    val_pictures, val_labels = draw(512, seed + 1000)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, CLASSES))
    # A sum over 32 examples has 32 times the gradient of their mean, and so the rate is 32 times smaller.
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    config = {
        "seed": seed,
        "lr_max": LR,
        "lr_min": 0.0,
        "schedule": "cosine",
        "warmup_steps": 0,
        "total_steps": STEPS,
        "batch_size": BATCH,
        "reduction": "sum",
        "num_classes": CLASSES,
        "init": "random",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(STEPS):
            rows = torch.randint(len(labels), (BATCH,))
            loss = nn.functional.cross_entropy(model(pictures[rows]), labels[rows], reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(loss, batch=(pictures[rows], labels[rows]))
            if step % 100 == 99:
                with torch.no_grad():
                    total = nn.functional.cross_entropy(model(val_pictures), val_labels, reduction="sum")
                # Per batch, like the training loss beside it.
                run.val(total * BATCH / len(val_labels), batches=[(val_pictures, val_labels)])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
