"""A function main: four micro-batches per step without a loader, the last step has two."""

import torch
from common import data, show
from torch import nn


def main():
    torch.manual_seed(3)
    inputs, targets = data()
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    micro = 4
    for step in range(30):
        losses = []
        count = micro if step < 29 else 2
        for index in range(count):
            rows = torch.arange(8) + 8 * ((step * micro + index) % 16)
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            (loss / micro).backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        show(loss=sum(losses) / count)


if __name__ == "__main__":
    main()
