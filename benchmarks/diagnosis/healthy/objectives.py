"""Other things than a class to learn: inputs as their own targets, pairs, soft labels, several losses at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div, mse_loss, normalize

import steadyrun
from diagnosis.harness import Batches, Config, split_decay
from diagnosis.healthy.loop import declared, trainer

FEATURES, GROUPS, WIDTH, ROWS, BATCH = 32, 8, 64, 2000, 40


def mixture(seed: int, count: int = ROWS) -> tuple[Tensor, Tensor]:
    """Points around eight centres in a curved sheet of 32 dimensions."""
    fixed = torch.Generator().manual_seed(3)
    centres, sheet = torch.randn(GROUPS, 6, generator=fixed), torch.randn(6, FEATURES, generator=fixed) / 6**0.5
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(GROUPS, (count,), generator=draw)
    x = torch.tanh((centres[labels] + 0.6 * torch.randn(count, 6, generator=draw)) @ sheet)
    return x + 0.1 * torch.randn(count, FEATURES, generator=draw), labels


def batch_of(x: Tensor, y: Tensor, kind: str, draw: torch.Generator) -> list[Tensor]:
    if kind in ("autoencoder", "vae"):
        return [x, x]
    if kind == "denoising":
        return [x + 0.5 * torch.randn(x.shape, generator=draw), x]
    if kind == "contrastive":
        return [x + 0.1 * torch.randn(x.shape, generator=draw) for _ in range(2)]
    if kind == "distillation":
        soft = (x[:, :GROUPS] * 3).softmax(dim=1)
        return [x, soft]
    if kind == "multi-task":
        return [x, y, x.square().mean(dim=1)]
    return [x, y]


def batches(config: Config) -> Iterator[list[Tensor]]:
    x, y = mixture(config["seed"])
    draw = torch.Generator().manual_seed(config["seed"])
    while True:
        order = torch.randperm(ROWS, generator=draw)
        for begin in range(0, ROWS, BATCH):
            rows = order[begin : begin + BATCH]
            yield batch_of(x[rows], y[rows], config["kind"], draw)


def validation(config: Config) -> list[list[Tensor]]:
    x, y = mixture(config["seed"] + 300, 400)
    draw = torch.Generator().manual_seed(config["seed"] + 300)
    parts = zip(x.split(BATCH), y.split(BATCH), strict=True)  # a contrast depends on how many there are
    return [batch_of(*part, config["kind"], draw) for part in parts]


class Net(nn.Module):
    """An encoder with as many heads as its objective needs."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, narrow = kind, 16 if kind == "vae" else 8
        self.encoder = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, narrow))
        out = FEATURES if kind in ("autoencoder", "denoising", "vae") else GROUPS
        if kind != "contrastive":
            self.head = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, out))
        if kind in ("auxiliary", "multi-task"):
            self.second = nn.Linear(8, GROUPS if kind == "auxiliary" else 1)

    def forward(self, x: Tensor) -> Any:
        code = self.encoder(x)
        if self.kind == "vae":
            mean, log_variance = code.chunk(2, dim=1)
            code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            return self.head(code), mean, log_variance
        if self.kind == "contrastive":
            return code
        return self.head(code), code, self.second(code) if hasattr(self, "second") else None


def make_loss(kind: str) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        if kind == "contrastive":
            first, second = (normalize(model(view), dim=1) for view in batch)
            return cross_entropy(first @ second.T / 0.2, torch.arange(len(first)))
        out, code, more = model(batch[0])
        if kind in ("autoencoder", "denoising"):
            return mse_loss(out, batch[1])
        if kind == "vae":
            divergence = -0.5 * (1 + more - code.square() - more.exp()).sum(dim=1).mean()
            return (out - batch[1]).square().sum(dim=1).mean() + 0.2 * divergence
        if kind == "distillation":
            return kl_div(out.log_softmax(dim=1), batch[1], reduction="batchmean")
        if kind == "multi-task":
            return cross_entropy(out, batch[1]) + 10 * mse_loss(more.squeeze(1), batch[2])
        if kind == "auxiliary":
            return cross_entropy(out, batch[1]) + 0.3 * cross_entropy(more, batch[1])
        if kind == "cosine":
            return 1 - cosine_similarity(out, nn.functional.one_hot(batch[1], GROUPS).float()).mean()
        return cross_entropy(out, batch[1])

    return loss_fn


def configure(seed: int, kind: str, steps: int = 400) -> Config:
    return declared("objectives", kind, seed, steps, batch_size=BATCH)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Net(config["kind"])
    optimizer = torch.optim.AdamW(split_decay(model, config["weight_decay"]), lr=config["lr_max"])
    return steadyrun.Task(
        model,
        optimizer,
        make_loss(config["kind"]),
        loader=Batches(partial(batches, config)),
        val_loader=validation(config),
    )


train = trainer(configure, task, validation)
