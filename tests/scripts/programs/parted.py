"""An optimizer that leaves the parameters of this rank to another optimizer, as ZeroRedundancyOptimizer does."""

import torch
from common import data, show
from torch import nn


class Parted(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        self.optim = torch.optim.SGD(self.param_groups[0]["params"][:2], lr=lr)

    def step(self, closure=None):
        self.optim.step(closure)


torch.manual_seed(3)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = Parted(model.parameters(), lr=0.1)
inputs, targets = data()
for _ in range(25):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    show(loss=loss)
