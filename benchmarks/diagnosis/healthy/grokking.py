"""Addition modulo a prime from half of all sums: learnt by heart first, validation stays bad for long."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steadyrun
from diagnosis.harness import Batches, Config, split_decay
from diagnosis.healthy.loop import declared, trainer

PRIME, WIDTH = 31, 48


def sums(seed: int) -> tuple[Tensor, Tensor]:
    both = torch.cartesian_prod(torch.arange(PRIME), torch.arange(PRIME))
    both = both[torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))]
    return both, both.sum(dim=1) % PRIME


def batches(config: Config) -> Iterator[list[Tensor]]:
    """All training sums in every step."""
    x, y = sums(config["seed"])
    half = len(x) // 2
    while True:
        yield [x[:half], y[:half]]


def validation(config: Config) -> list[list[Tensor]]:
    x, y = sums(config["seed"])
    half = len(x) // 2
    return [[x[half:], y[half:]]]


class Adder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.Embedding(PRIME, WIDTH)
        self.net = nn.Sequential(nn.Linear(2 * WIDTH, 128), nn.ReLU(), nn.Linear(128, PRIME))

    def forward(self, pairs: Tensor) -> Tensor:
        return self.net(self.numbers(pairs).flatten(1))


def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def configure(seed: int, steps: int = 600) -> Config:
    more = {"num_classes": PRIME, "batch_size": PRIME**2 // 2, "shuffle": False}
    return declared("grokking", "grokking", seed, steps, lr_max=1e-2, weight_decay=1.0, **more)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Adder()
    optimizer = torch.optim.AdamW(split_decay(model, config["weight_decay"]), lr=config["lr_max"])
    return steadyrun.Task(
        model, optimizer, loss_fn, loader=Batches(partial(batches, config)), val_loader=validation(config)
    )


train = trainer(configure, task, validation)
