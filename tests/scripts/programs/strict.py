"""A script that knows its arguments, and trains for a few steps."""

from __future__ import annotations

import argparse

import torch

argparse.ArgumentParser().parse_args()
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    loss = model(torch.randn(8, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
