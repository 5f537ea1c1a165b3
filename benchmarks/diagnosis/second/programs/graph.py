"""A graph network that tells the community of a node from weak features and its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

NODES, GROUPS, FEATURES, TRAIN_NODES, VAL_NODES = 400, 6, 16, 200, 100


@cache
def network(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features, groups and the normalised adjacency of a random graph with six communities."""
    fixed, draw = torch.Generator().manual_seed(2), torch.Generator().manual_seed(seed)
    group = torch.randint(GROUPS, (NODES,), generator=draw)
    centres = torch.randn(GROUPS, FEATURES, generator=fixed)
    x = 0.5 * centres[group] + torch.randn(NODES, FEATURES, generator=draw)
    chance = torch.where(group[:, None] == group[None, :], 0.08, 0.008)
    edges = torch.rand(NODES, NODES, generator=draw).triu(1) > 1 - chance.triu(1)
    adjacency = (edges | edges.T).float() + torch.eye(NODES)
    degree = adjacency.sum(dim=1).rsqrt()
    return x, group, degree[:, None] * adjacency * degree[None, :]


class Net(nn.Module):
    """Two rounds of messages along the edges."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        x, _, adjacency = network(config["seed"])
        if config["bug"] == "inputs-not-scaled":
            x = 1000 * x
        if config["bug"] == "input-ignored":  # the edges were read into another variable
            adjacency = torch.eye(NODES)
        self.register_buffer("x", x)
        self.register_buffer("adjacency", adjacency)
        self.first, self.second = nn.Linear(FEATURES, 32), nn.Linear(32, GROUPS)
        self.dropout, self.bug = nn.Dropout(config["dropout"]), config["bug"]
        self.activation = torch.tanh if config["activation"] == "tanh" else torch.relu

    def forward(self, nodes: Tensor) -> Tensor:
        hidden = self.activation(self.adjacency @ self.first(self.x))
        return (self.adjacency @ self.second(self.dropout(hidden)))[nodes]


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out = model(batch[0])
        if bug == "softmax-over-batch":
            return nll_loss(out.log_softmax(dim=0), batch[1])
        if bug == "wrong-reduction":  # the sum, where the rate was found for the mean
            return cross_entropy(out, batch[1], reduction="sum")
        loss = cross_entropy(out, batch[1], label_smoothing=config["smoothing"] if model.training else 0.0)
        if bug == "root-of-zero":  # keep neighbours near each other; a node is its own neighbour
            close = model.first(model.x[batch[0]])
            loss = loss + 1e-3 * (close - close.clone()).square().sum(dim=1).sqrt().mean()
        return loss

    return loss_fn


def labelled(config: Config) -> Tensor:
    """The groups as the training sees them."""
    group = network(config["seed"])[1].clone()
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if config["bug"] == "labels-permuted":
        group[:TRAIN_NODES] = group[:TRAIN_NODES][torch.randperm(TRAIN_NODES, generator=draw)]
    if config["bug"] == "labels-partly-wrong":
        wrong = torch.rand(TRAIN_NODES, generator=draw) < 0.6
        group[:TRAIN_NODES][wrong] = torch.randint(GROUPS, (int(wrong.sum()),), generator=draw)
    return group


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    group = labelled(config)
    count = TRAIN_NODES + VAL_NODES if config["bug"] == "validation-in-training" else TRAIN_NODES
    for nodes in rows_in_order(count, config, first):
        yield [nodes, group[nodes]]


def validation(config: Config) -> list[list[Tensor]]:
    nodes = torch.arange(TRAIN_NODES, TRAIN_NODES + VAL_NODES)
    return [[nodes, network(config["seed"])[1][nodes]]]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 300, "lr_max": 1e-2, "batch_size": 50, "steps_per_epoch": 4, "num_classes": GROUPS}
    own |= {"part": "second", "dead": "first.bias", "dropout": 0.3, "activation": "relu", "schedule": "constant"}
    return declared("graph", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Net(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Accuracy on nodes that are neither trained nor validated on."""
    nodes = torch.arange(TRAIN_NODES + VAL_NODES, NODES)
    return float((model(nodes).argmax(dim=1) == network(config["seed"])[1][nodes]).float().mean())


train = trainer(configure, task, batches, quality)
