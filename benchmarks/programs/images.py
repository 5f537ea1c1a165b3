"""A small convolutional network with batch normalisation that names shapes; SGD with momentum, one cycle."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from shapes import CLASSES, draw
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import steadyrun

EPOCHS = 10
BATCH = 64
LR = 0.1


def conv_block(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(conv_block(1, 16), conv_block(16, 32), conv_block(32, 64))
        self.classify = nn.Linear(64 * 2 * 2, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.classify(self.features(pictures).flatten(1))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss, right, count = 0.0, 0, 0
    for pictures, labels in loader:
        logits = model(pictures)
        loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(1) == labels).sum().item()
        count += len(labels)
    model.train()
    return loss / count, right / count


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    train_loader = DataLoader(TensorDataset(*draw(2560, seed)), BATCH, shuffle=True, drop_last=True)
    val_loader = DataLoader(TensorDataset(*draw(512, seed + 1000)), 256)
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    steps = EPOCHS * len(train_loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LR, total_steps=steps)
    config = {
        "seed": seed,
        "lr_max": LR,
        "schedule": "one-cycle",
        "total_steps": steps,
        "batch_size": BATCH,
        "weight_decay": 5e-4,
        "num_classes": CLASSES,
        "init": "random",
        "reduction": "mean",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for _ in range(EPOCHS):
            for pictures, labels in train_loader:
                loss = nn.functional.cross_entropy(model(pictures), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                run.step(loss, batch=(pictures, labels))
            val_loss, accuracy = evaluate(model, val_loader)
            run.val(val_loss, batches=val_loader, accuracy=accuracy)


if __name__ == "__main__":
    train(Path(sys.argv[1]))
