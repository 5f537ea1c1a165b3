"""Can the model learn 64 pictures by heart? The usual first test of a new program: loss and gradient go to zero."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from shapes import CLASSES, draw
from torch import nn

import steadyrun

STEPS = 600
BATCH = 32
LR = 1e-3


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    pictures, labels = draw(64, seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    config = {
        "seed": seed,
        "lr_max": LR,
        "schedule": "constant",
        "total_steps": STEPS,
        "batch_size": BATCH,
        "num_classes": CLASSES,
        "init": "random",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer)
        for _ in range(STEPS // 2):
            for rows in torch.randperm(len(labels)).split(BATCH):
                loss = nn.functional.cross_entropy(model(pictures[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, batch=(pictures[rows], labels[rows]))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
