"""One target is NaN; `task` is what replay needs."""

import torch
from common import data
from torch import nn


def build():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def task():
    import steadyrun

    return steadyrun.Task(*build(), lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]))


if __name__ == "__main__":
    torch.manual_seed(3)
    inputs, targets = data(rows=256)
    targets[200] = float("nan")
    model, optimizer = build()
    for batch, wanted in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=8):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), wanted).backward()
        optimizer.step()
