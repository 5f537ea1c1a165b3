"""Fails in its second function after some steps, or before them; with its own excepthook; or is interrupted."""

import os
import signal
import sys

import torch
from common import data
from torch import nn


def train(steps):
    inputs, targets = data()
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(inputs), targets)
        if mode == "first":
            raise IndexError("in the first step, before the optimizer")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


mode = sys.argv[1]
if mode == "early":
    raise ValueError("no data")
if mode == "never":
    nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
    sys.exit()
train(25)
if mode == "hook":
    sys.excepthook = lambda kind, problem, trace: print("own hook:", kind.__name__, problem)
    raise RuntimeError("after training")
if mode == "interrupt":
    signal.raise_signal(signal.SIGINT)
if mode == "terminate":
    os.kill(os.getpid(), signal.SIGTERM)
if mode == "message":
    sys.exit("stopped: bad luck")
raise RuntimeError("after training")
