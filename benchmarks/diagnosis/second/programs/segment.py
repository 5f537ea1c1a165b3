"""A small U-Net: discs and squares in noisy pictures of different widths, three classes for every pixel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, max_pool2d, nll_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import assemble, declared, rows_in_order, trainer

SIZE, CLASSES, TRAIN_ROWS, VAL_ROWS, VOID = 20, 3, 480, 96, 255


@cache
def pictures(seed: int) -> tuple[Tensor, Tensor]:
    """Pictures and classes of their pixels; beyond the width of a picture there is nothing, marked as void."""
    draw = torch.Generator().manual_seed(seed)
    count = TRAIN_ROWS + VAL_ROWS
    rows, columns = torch.arange(SIZE)[None, :, None], torch.arange(SIZE)[None, None, :]
    at = torch.randint(4, SIZE - 4, (4, count, 1, 1), generator=draw)
    disc = (rows - at[0]).square() + (columns - at[1]).square() <= 14
    square = ((rows - at[2]).abs() <= 2) & ((columns - at[3]).abs() <= 2)
    classes = torch.where(disc, 1, torch.where(square, 2, 0))
    x = torch.tensor([0.0, 0.8, 1.4])[classes] + 0.35 * torch.randn(count, SIZE, SIZE, generator=draw)
    outside = columns >= torch.randint(SIZE - 8, SIZE + 1, (count, 1, 1), generator=draw)
    return torch.where(outside, 0.0, x).unsqueeze(1), torch.where(outside, VOID, classes)


def dataset(config: Config, *, train: bool) -> tuple[Tensor, Tensor]:
    """One split; what some bugs do to it."""
    bug = config["bug"]
    x, y = (part[:TRAIN_ROWS] if train else part[TRAIN_ROWS:] for part in pictures(config["seed"]))
    if not train and bug == "val-not-normalised":  # eight-bit pictures
        return 127 + 64 * x, y
    if not train:
        return x, y
    draw = torch.Generator().manual_seed(config["seed"] + 1)
    if bug == "labels-permuted":
        y = y[torch.randperm(len(y), generator=draw)]
    if bug == "labels-partly-wrong":  # six of ten masks lie a few pixels beside its picture
        moved = torch.rand(len(y), 1, 1, generator=draw) < 0.6
        y = torch.where(moved, y.roll((6, 6), (1, 2)), y)
    if bug == "nan-example":
        x = x.clone()
        x[200, 0, 3, 3] = torch.nan
    return x, y


def block(inside: int, outside: int, config: Config) -> nn.Sequential:
    norm = nn.GroupNorm(4, outside) if config["norm"] == "group" else nn.BatchNorm2d(outside)
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), norm, nn.ReLU())


class UNet(nn.Module):
    """Down once, up once, with a skip connection."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.down, self.middle = block(1, 8, config), block(8, 16, config)
        self.up = block(24, 8, config)
        self.out = nn.Conv2d(8, CLASSES, 1)
        self.bug = config["bug"]
        if self.bug == "unregistered":
            self.__dict__["stages"] = [self._modules.pop("middle"), self._modules.pop("up")]

    def forward(self, x: Tensor) -> Tensor:
        middle, up = self.__dict__["stages"] if self.bug == "unregistered" else (self.middle, self.up)
        fine = self.down(x)
        coarse = middle(max_pool2d(fine, 2))
        if self.bug == "cut-off":
            coarse = coarse.detach()
        return self.out(up(torch.cat([fine, interpolate(coarse, scale_factor=2.0)], dim=1)))


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        out, y = model(batch[0]).float(), batch[1]
        weight = torch.tensor([1.0, 3.0, 3.0]) if config["weighted"] else None
        if bug == "padding-learned":
            y = y.masked_fill(y == VOID, 0)
        if bug == "mask-inverted":  # only what lies outside of the picture counts
            y = torch.where(y == VOID, 0, VOID)
        if bug == "softmax-twice":
            return cross_entropy(out.softmax(dim=1), y, ignore_index=VOID)
        if bug == "softmax-over-batch":
            return nll_loss(out.log_softmax(dim=0), y, ignore_index=VOID)
        loss = cross_entropy(out, y, weight, ignore_index=VOID, reduction=config["reduction"])
        return loss if config["reduction"] == "mean" else loss / len(y)

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    x, y = dataset(config, train=True)
    for rows in rows_in_order(len(x), config, first):
        yield [x[rows], y[rows]]


def validation(config: Config) -> list[list[Tensor]]:
    x, y = dataset(config, train=False)
    return [[*pair] for pair in zip(x.split(32), y.split(32), strict=True)]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 300, "lr_max": 5e-3, "batch_size": 12, "num_classes": CLASSES, "steps_per_epoch": 40}
    own |= {"part": "up", "dead": "middle.1.bias", "weighted": False, "norm": "batch", "reduction": "mean"}
    return declared("segment", bug, seed, changes, **own)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, UNet(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Mean intersection over union of discs and squares in held-out pictures."""
    scores = []
    for kind in (1, 2):
        pairs = [(model(x).argmax(dim=1) == kind, y == kind, y != VOID) for x, y in validation(config)]
        both = sum(float((found & there).sum()) for found, there, _ in pairs)
        either = sum(float(((found | there) & inside).sum()) for found, there, inside in pairs)
        scores.append(both / max(1.0, either))
    return sum(scores) / len(scores)


train = trainer(configure, task, batches, quality)
