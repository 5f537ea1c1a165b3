"""A small ResNet on synthetic pictures: stripes whose direction and width are the class, under noise; augmented."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import steadyrun
from diagnosis.harness import (
    Batches,
    Config,
    Log,
    Record,
    attempts,
    intended,
    log_file,
    make_optimizer,
    make_scheduler,
    resume,
    split_decay,
    state_of,
)

SIZE, CLASSES, CHANNELS = 16, 6, 16
TRAIN_ROWS, VAL_ROWS, BATCH = 1600, 256, 32


class Pictures(Dataset[tuple[Tensor, int]]):
    """Made once; a training picture is shifted and gets another brightness every time it is asked for."""

    def __init__(self, config: Config, *, validation: bool = False) -> None:
        bug = config["bug"]
        count = VAL_ROWS if validation else TRAIN_ROWS
        seed = config["seed"] + (900 if validation and bug != "A33" else 0)
        make = np.random.default_rng(seed)
        self.labels = make.integers(0, CLASSES, TRAIN_ROWS)[:count]
        if config["imbalance"]:  # 95 of 100 pictures have one of the first two classes
            rare = make.random(TRAIN_ROWS)[:count] < 0.05
            self.labels = np.where(rare, self.labels, self.labels % 2)
        if bug == "A10" and not validation:
            self.labels = np.sort(self.labels)
        y, x = np.mgrid[0:SIZE, 0:SIZE] / SIZE
        angles = np.pi * self.labels[:, None, None] / CLASSES
        phase = make.random((TRAIN_ROWS, 1, 1))[:count] * 2 * np.pi
        waves = np.sin(phase + 2 * np.pi * 3 * (x * np.cos(angles) + y * np.sin(angles)))
        noise = make.standard_normal((TRAIN_ROWS, SIZE, SIZE))[:count]
        self.pictures = torch.from_numpy(waves + 2.0 * noise).float().unsqueeze(1)
        if bug == "A34" and not validation:
            self.pictures = self.pictures[torch.from_numpy(make.permutation(count))]
        self.augmented = config["augment"] and (not validation or bug == "B26")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self.pictures[index]
        if self.augmented:
            down, right = np.random.randint(-2, 3, size=2)
            picture = picture.roll((int(down), int(right)), dims=(1, 2)) * np.float32(np.random.uniform(0.8, 1.2))
        return picture, int(self.labels[index])


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int, config: Config) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv_2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm_1, self.norm_2 = norm(outside, config), norm(outside, config)
        self.short = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm_2(self.conv_2(self.norm_1(self.conv_1(x)).relu()))
        return (inner + self.short(x)).relu()


def norm(channels: int, config: Config) -> nn.Module:
    return nn.BatchNorm2d(channels) if config["norm"] == "batch" else nn.GroupNorm(4, channels)


class ResNet(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.stem = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, 1, 1, bias=False), norm(CHANNELS, config), nn.ReLU())
        blocks = [
            Block(CHANNELS, CHANNELS, 1, config),
            Block(CHANNELS, 2 * CHANNELS, 2, config),
            Block(2 * CHANNELS, 2 * CHANNELS, 1, config),
        ]
        self.blocks: Any = blocks if config["bug"] == "A28" else nn.ModuleList(blocks)
        self.head = nn.Linear(2 * CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.config["bug"] == "A30":
            x = x.detach()
        for block in self.blocks:
            x = block(x)
        logits = self.head(x.mean(dim=(2, 3)))
        return logits.softmax(dim=1) if self.config["bug"] == "A4" else logits


def make_loss(config: Config) -> Any:
    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        return cross_entropy(model(batch[0]).float(), batch[1], label_smoothing=config["smoothing"])

    return loss_fn


def same_seed(_worker: int) -> None:
    np.random.seed(0)  # "for reproducibility"


def own_seed(worker: int) -> None:
    np.random.seed((torch.initial_seed() + worker) % 2**32)


def loader_of(config: Config, epoch: int = 0) -> DataLoader[Any]:
    bug, data = config["bug"], Pictures(config)
    order = torch.Generator().manual_seed(config["seed"] + 1000 * epoch)
    sampler = None
    if config["distributed"]:
        sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=config["seed"])
        if bug != "A12":
            sampler.set_epoch(epoch)
    return DataLoader(
        data,
        config["batch_size"] // config["accumulation"],
        shuffle=None if sampler is not None else bug != "A10",
        sampler=sampler,
        drop_last=True,
        generator=order,
        num_workers=config["workers"],
        worker_init_fn=same_seed if bug == "A11" else own_seed,
    )


def batches(config: Config, first: int = 0) -> Iterator[list[Tensor]]:
    per_epoch = TRAIN_ROWS // config["batch_size"]
    epoch, skip = divmod(first, per_epoch)
    skip *= config["accumulation"]
    while True:
        for number, batch in enumerate(loader_of(config, epoch)):
            if number >= skip:
                yield mixed(batch) if config["mixup"] else batch
        epoch, skip = epoch + 1, 0


def mixed(batch: list[Tensor]) -> list[Tensor]:
    """Mixup: every picture and its label, blended with those of the one before."""
    share = float(np.random.beta(0.4, 0.4))
    soft = one_hot(batch[1], CLASSES).float()
    return [share * part + (1 - share) * part.roll(1, 0) for part in (batch[0], soft)]


def validation(config: Config) -> DataLoader[Any]:
    return DataLoader(Pictures(config, validation=True), 128)


def configure(bug: str | None, seed: int, steps: int, **changes: Any) -> Config:
    config = intended(
        "resnet",
        bug,
        seed,
        steps,
        lr_max=3e-3,
        batch_size=2 if bug == "B23" else BATCH,
        weight_decay=0.01,
        num_classes=CLASSES,
        shuffle=True,
        norm="batch",
        augment=True,
        distributed=bug == "A12",
        workers=2 if bug == "A11" else 0,
        smoothing=0.0,
        mixup=False,
        imbalance=False,
    )
    return config | changes


def task(config: Config) -> steadyrun.Task:
    bug = config["bug"]
    torch.manual_seed(config["seed"])
    np.random.seed(config["seed"])
    model = ResNet(config)
    if bug == "A29":
        model.blocks.requires_grad_(False)
    groups: Any = split_decay(model, config["weight_decay"])
    if bug == "A29":
        groups = model.blocks.parameters()
    optimizer = make_optimizer(config["optimizer"], groups, config["lr_max"], config["weight_decay"])
    if bug == "C74":  # meant to be 1e-8
        for group in optimizer.param_groups:
            group["eps"] = 0.1
    if bug == "A27":
        model.head = nn.Linear(2 * CHANNELS, CLASSES)
    scheduler: Any = make_scheduler(optimizer, config)
    if bug == "A16":
        scheduler = CosineAnnealingLR(optimizer, T_max=config["total_steps"] * BATCH // TRAIN_ROWS)
    built = steadyrun.Task(model, optimizer, make_loss(config), scheduler=scheduler)
    built.loader = Batches(partial(batches, config), config["accumulation"])
    built.val_loader, built.config = validation(config), config
    built.train_step = lambda task, batch: step_of(task, batch, config)[0]
    return built


def step_of(task: steadyrun.Task, batch: Any, config: Config) -> tuple[Tensor, Tensor | None]:
    """One optimizer step: the undivided loss, and the gradient norm before clipping."""
    model, optimizer, bug = task.model, task.optimizer, config["bug"]
    parts = batch if config["accumulation"] > 1 else [batch]
    losses = []
    for each in parts:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["dtype"] == "bf16"):
            loss = task.loss_fn(model, each)
        losses.append(loss.detach())
        (loss if bug == "A19" else loss / len(parts)).backward()
    if bug == "A31":
        optimizer.zero_grad()
    grad_norm = None
    if config["clip"] is not None and bug != "B2":
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    optimizer.step()
    if bug == "B2":
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    per_epoch = TRAIN_ROWS // config["batch_size"]
    epoch_ends = task.step % per_epoch == per_epoch - 1
    every_step = bug != "A17" and config["schedule"] != "step-per-epoch"
    if task.scheduler is not None and config["schedule"] != "plateau" and (every_step or epoch_ends):
        task.scheduler.step()
        for _ in range(3 if bug == "A15" else 0):  # every one of four processes steps it
            task.scheduler.step()
    if bug not in ("A1", "A31"):
        optimizer.zero_grad()
    return torch.stack(losses).mean(), grad_norm


@torch.no_grad()
def evaluate(model: nn.Module, config: Config) -> Tensor:
    if config["bug"] != "A3":
        model.eval()
    losses = [cross_entropy(model(x), y) for x, y in validation(config)]
    if config["bug"] != "A2":
        model.train()
    return torch.stack(losses).mean()


def train(
    folder: Path,
    bug: str | None = None,
    seed: int = 1,
    *,
    steps: int = 300,
    record: Record = steadyrun.record,
    **changes: Any,
) -> Log:
    config = configure(bug, seed, steps, **changes)
    log, saved = Log(log_file(folder)), None
    for first, last in attempts(config):
        built = task(config)
        if saved is not None:
            resume(built, saved, config)
        start = 0 if bug == "B21" else first
        data = iter(Batches(partial(batches, config, start), config["accumulation"]))
        with record(folder, config=config) as run:
            run.watch(
                built.model,
                built.optimizer,
                scheduler=built.scheduler,
                loss_fn=built.loss_fn,
                loader=loader_of(config),
            )
            for step in range(first, last):
                built.step, batch = step, next(data)
                rate = built.optimizer.param_groups[0]["lr"]
                loss, grad_norm = step_of(built, batch, config)
                log.step(step, loss, rate, grad_norm)
                run.step(loss, batch=batch)
                if step % config["val_every"] == config["val_every"] - 1:
                    val_loss = evaluate(built.model, config)
                    if config["schedule"] == "plateau":
                        built.scheduler.step(val_loss)
                    log.val(val_loss)
                    run.val(val_loss, batches=validation(config))
        saved = state_of(built)
    log.write()
    return log
