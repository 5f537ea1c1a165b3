"""A script that calls `steadyrun.record` itself."""

import torch
from common import data, show
from torch import nn

import steadyrun

torch.manual_seed(3)
inputs, targets = data()
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
with steadyrun.record("experiments/mine") as run:
    run.watch(model, optimizer)
    for step in range(25):
        rows = torch.arange(16) + 16 * (step % 8)
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss, batch=(inputs[rows], targets[rows]))
        show(loss=loss)
