"""Loader workers, a spawned and a forked child process that train as well, standard input, and exit code 3."""

import multiprocessing
import os
import sys

import torch
from common import data, show
from torch import nn


def train(steps, silent=False, workers=0):
    torch.manual_seed(3)
    dataset = torch.utils.data.TensorDataset(*data(rows=64))
    loader = torch.utils.data.DataLoader(dataset, batch_size=16, num_workers=workers)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while steps:
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not silent:
                show(loss=loss)
            steps -= 1
            if not steps:
                break


def in_child():
    assert "steadyrun" not in sys.modules or multiprocessing.get_start_method(allow_none=True) != "spawn"
    train(5, silent=True)
    print("child done", flush=True)


if __name__ == "__main__":
    assert __spec__ is None
    assert sys.modules["__main__"].train is train
    print("read", sys.stdin.readline().strip(), flush=True)
    train(24, workers=1)
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=in_child)
        child.start()
        child.join()
        print(method, child.exitcode, flush=True)
    if os.fork() == 0:
        print("forked to the end", flush=True)
        sys.exit(0)
    os.wait()
    sys.exit(3)
