"""LBFGS: the optimizer calls a closure several times per step. A class holds model and optimizer."""

import torch
from common import data, show
from torch import nn


class Fit:
    def __init__(self):
        self.net = nn.Linear(8, 1)
        self.optimizer = torch.optim.LBFGS(self.net.parameters(), lr=0.5, max_iter=4)
        self.inputs, self.targets = data()

    def run(self):
        for _ in range(25):

            def closure():
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.net(self.inputs), self.targets)
                loss.backward()
                return loss

            show(loss=self.optimizer.step(closure))


torch.manual_seed(3)
Fit().run()
