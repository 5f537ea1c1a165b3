"""A detector: one shape per picture, its kind and its box; two convolutions and two heads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d, smooth_l1_loss

import steadyrun
from diagnosis.harness import Config
from diagnosis.second.loop import rows_in_order, trainer
from diagnosis.third.loop import assemble, declared, pairs, shuffled

SIDE, KINDS, TRAIN_ROWS, VAL_ROWS = 16, 3, 1280, 256


@cache
def pictures(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures of 0 to 255, the kind (full, frame, cross) and the box (centre and size, in parts of the side)."""
    draw, count = torch.Generator().manual_seed(seed), TRAIN_ROWS + VAL_ROWS
    size = torch.randint(5, 11, (count, 2), generator=draw)
    corner = (torch.rand(count, 2, generator=draw) * (SIDE + 1 - size)).long()
    kind = torch.randint(KINDS, (count,), generator=draw)
    place = torch.arange(SIDE)
    from_start = place - corner[..., None]  # (count, 2, SIDE)
    from_end = size[..., None] - 1 - from_start
    inside = (from_start >= 0) & (from_end >= 0)
    edge = (from_start == 0) | (from_end == 0)
    middle = (from_start - from_end).abs() <= 1
    full = inside[:, 0, :, None] & inside[:, 1, None, :]
    frame = full & (edge[:, 0, :, None] | edge[:, 1, None, :])
    cross = full & (middle[:, 0, :, None] | middle[:, 1, None, :])
    shape = torch.stack([full, frame, cross], dim=1)[torch.arange(count), kind].float()
    light = 90 + 90 * torch.rand(count, 1, 1, generator=draw)
    image = (30 + light * shape + 25 * torch.randn(shape.shape, generator=draw)).clamp(0, 255)
    return image.unsqueeze(1), kind, torch.cat([corner + size / 2, size.float()], dim=1) / SIDE


def dataset(config: Config, *, train: bool) -> list[Tensor]:
    """Scaled pictures, kinds and boxes of one split; what some bugs do to them."""
    bug = config["bug"]
    rows = slice(0, TRAIN_ROWS) if train else slice(TRAIN_ROWS, None)
    image, kind, box = (part[rows].clone() for part in pictures(config["seed"]))
    image = (image - 60) / 60
    if not train:
        if bug == "val-scaled-twice":
            image = (image - 60) / 60
        return [image, kind, box * SIDE if bug == "val-boxes-in-pixels" else box]
    if config["imbalance"]:
        keep = (kind == 0) | (torch.arange(len(kind)) % 6 == 0)
        image, kind, box = image[keep], kind[keep], box[keep]
    if bug == "labels-permuted":
        kind, box = shuffled(kind, 7), shuffled(box, 7)
    if bug == "boxes-of-other-pictures":
        box = shuffled(box, 7)
    if bug == "nan-example":
        box[400] = torch.nan
    if bug == "twenty-examples":
        image, kind, box = (part[:20].repeat(64, *[1] * (part.ndim - 1)) for part in (image, kind, box))
    return [image, kind, box]


class Detector(nn.Module):
    """A small body, a head for the kind and a head for the box."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        norm = nn.BatchNorm2d if config["norm"] == "batch" else partial(nn.GroupNorm, 4)
        self.first, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), norm(8)
        self.second, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), norm(16)
        self.dropout, self.hidden = nn.Dropout(config["dropout"]), nn.Linear(16 * (SIDE // 4) ** 2, 48)
        self.kind, self.box = nn.Linear(48, KINDS), nn.Linear(48, 4)
        self.bug = config["bug"]

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = max_pool2d(self.norm1(self.first(image)).relu(), 2)
        x = max_pool2d(self.norm2(self.second(x)).relu(), 2)
        if self.bug == "cut-off":
            x = x.detach()
        x = self.hidden(self.dropout(x.flatten(1))).relu()
        kind, box = self.kind(x), self.box(x)
        if self.bug == "softmax-twice":
            kind = kind.softmax(dim=1)
        return kind, box.tanh() * 0.3 if self.bug == "output-out-of-reach" else box


def make_loss(config: Config) -> Any:
    bug = config["bug"]
    weight = 1e4 if bug == "box-term-x1000" else config["box_weight"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        kind, box = model(batch[0])
        smoothing = config["smoothing"] if model.training else 0.0
        near = (
            -smooth_l1_loss(box, batch[2], beta=0.1) if bug == "box-sign" else smooth_l1_loss(box, batch[2], beta=0.1)
        )
        return cross_entropy(kind, batch[1], label_smoothing=smoothing) + weight * near

    return loss_fn


def batches(config: Config, first: int, _model: nn.Module) -> Iterator[list[Tensor]]:
    image, kind, box = dataset(config, train=True)
    for number, rows in enumerate(rows_in_order(len(kind), config, first), start=first):
        x, where = image[rows], box[rows]
        if config["flips"] or config["bug"] == "flipped-without-box":
            flip = torch.rand(len(x), generator=torch.Generator().manual_seed(number)) < 0.5
            x = torch.where(flip[:, None, None, None], x.flip(2), x)
            if config["bug"] != "flipped-without-box":
                mirrored = torch.cat([1 - where[:, :1], where[:, 1:]], dim=1)
                where = torch.where(flip[:, None], mirrored, where)
        if config["spikes"] and number % 90 == 60:  # a few overexposed pictures
            x = x + 15.0
        yield [x, kind[rows], where]


def validation(config: Config) -> list[list[Tensor]]:
    return pairs(64, *dataset(config, train=False))


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 320, "lr_max": 4e-3, "batch_size": 32, "num_classes": KINDS, "steps_per_epoch": 40}
    own |= {"part": "box", "dead": "norm2.bias", "imbalance": False, "flips": False, "spikes": False}
    return declared("boxes", bug, seed, changes, **own, norm="batch", box_weight=10.0, val_every=40)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    return assemble(config, Detector(config), make_loss(config), partial(batches, config), validation(config))


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """Mean overlap of the boxes of held-out pictures; nothing where the kind is wrong."""
    image, kind, box = (torch.cat(parts) for parts in zip(*validation(config), strict=True))
    said, found = model(image)
    if config["bug"] == "val-boxes-in-pixels":
        box = box / SIDE
    low = torch.maximum(box[:, :2] - box[:, 2:] / 2, found[:, :2] - found[:, 2:] / 2)
    high = torch.minimum(box[:, :2] + box[:, 2:] / 2, found[:, :2] + found[:, 2:] / 2)
    shared = (high - low).clamp(min=0).prod(dim=1)
    overlap = shared / (box[:, 2:].prod(dim=1) + found[:, 2:].clamp(min=0).prod(dim=1) - shared)
    return float((overlap * (said.argmax(dim=1) == kind)).mean())


train = trainer(configure, task, batches, quality)
