"""A multilayer perceptron on tabular data: a class, a probability or a number from twenty standardised features."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Subset, TensorDataset

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

FEATURES, CLASSES, WIDTH = 20, 8, 64
TRAIN_ROWS, VAL_ROWS, BATCH = 3200, 512, 32
LEFT_OVER = 64  # rows, of a limit that was meant for debugging
REGRESSIONS, BINARY = ("A8", "B10"), ("B9",)
HALF = ("B1", "B4", "B5", "B20")


def table(config: Config) -> TensorDataset:
    """Rows of a fixed teacher network, with a little noise; all rows, training first."""
    teacher = torch.Generator().manual_seed(11)
    first = torch.randn(FEATURES, 16, generator=teacher) / FEATURES**0.5
    second = torch.randn(16, CLASSES, generator=teacher)
    draw = torch.Generator().manual_seed(config["seed"])
    x = torch.randn(TRAIN_ROWS + VAL_ROWS, FEATURES, generator=draw)
    scores = torch.tanh(2 * x @ first) @ second
    scores = scores + 0.5 * torch.randn(scores.shape, generator=draw)
    if config["kind"] == "number":
        y = scores[:, 0] + 0.5 * scores[:, 1]
    elif config["kind"] == "yes-or-no":
        y = (scores[:, 0] > 0).float()
    else:
        y = scores.argmax(dim=1)
    if config["bug"] == "A34":  # only the features were shuffled
        x = x[torch.randperm(len(x), generator=draw)]
    if config["bug"] == "A10":  # exported sorted by class
        order = torch.cat([y[:TRAIN_ROWS].argsort(), torch.arange(TRAIN_ROWS, len(y))])
        x, y = x[order], y[order]
    return TensorDataset(x, y)


class MLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, bug = config, config["bug"]
        depth, activation = (12, nn.Sigmoid) if bug == "C19" else (config["depth"], nn.ReLU)
        hidden = [
            nn.Sequential(
                nn.Linear(FEATURES if number == 0 else WIDTH, WIDTH),
                nn.BatchNorm1d(WIDTH) if config["batch_norm"] else nn.Identity(),
                activation(),
                nn.Dropout(config["dropout"]),
            )
            for number in range(depth)
        ]
        if bug == "C18":
            nn.init.constant_(hidden[1][0].bias, -10.0)
        self.hidden: Any = hidden if bug == "A28" else nn.ModuleList(hidden)
        self.head = nn.Linear(WIDTH, CLASSES if config["kind"] == "class" else 1)
        self.importance = nn.Parameter(torch.zeros(FEATURES)) if bug == "B10" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.importance is not None:
            x = x + self.shares(x)
        for number, layer in enumerate(self.hidden):
            x = layer(x)
            if self.config["bug"] == "A30" and number == 1:
                x = x.detach()
        x = self.head(x)
        return x.softmax(dim=1) if self.config["bug"] == "A4" else x

    def shares(self, x: Tensor) -> Tensor:
        """How much each measurement counts among those that are there; the branch for 0 / 0 comes too late."""
        there = x != 0
        weights = self.importance.exp() * there
        return torch.where(there.any(dim=1, keepdim=True), weights / weights.sum(dim=1, keepdim=True), 0.0)


def make_loss(config: Config) -> Any:
    """The loss function of the kind of target."""
    bug = config["bug"]

    def classes(model: nn.Module, batch: list[Tensor]) -> Tensor:
        loss = cross_entropy(model(batch[0]).float(), batch[1], reduction=config["reduction"])
        if bug == "B5":  # a penalty on the distance of a bias from itself: its gradient is infinite at any scale
            loss = loss + 1e-3 * torch.sqrt((model.head.bias - model.head.bias.detach()).square().sum())
        return loss

    def number(model: nn.Module, batch: list[Tensor]) -> Tensor:
        predicted = model(batch[0])
        if bug != "A8":
            predicted = predicted.squeeze(1)
        return mse_loss(predicted, batch[1])

    def yes_or_no(model: nn.Module, batch: list[Tensor]) -> Tensor:
        if bug != "B9":
            return nn.functional.binary_cross_entropy_with_logits(model(batch[0]).squeeze(1), batch[1])
        p = model(batch[0]).squeeze(1).sigmoid()
        return -(batch[1] * p.log() + (1 - batch[1]) * (1 - p).log()).mean()

    return {"class": classes, "number": number, "yes-or-no": yes_or_no}[config["kind"]]


class Rows(TensorDataset):
    """The training table; in some bugs a few of its rows are strange."""

    def __init__(self, data: TensorDataset, bug: str | None, order: torch.Generator) -> None:
        x, y = (part[: LEFT_OVER if bug == "E5" else TRAIN_ROWS].clone() for part in data.tensors)
        if bug in ("B4", "B9"):  # one row in other units than the rest
            x[1700, :4] *= 3e5 if bug == "B4" else 200.0
        if bug == "B10":  # a row in which every measurement is missing
            x[1700] = 0.0
        if bug == "E1":  # a logarithm of a negative measurement
            x[1700, 3] = float("nan")
        if bug == "E4":  # the labels have an order of their own in every epoch
            y = y[torch.randperm(len(y), generator=order)]
        super().__init__(x, y)


def loaders(config: Config, epoch_seed: int = 0) -> tuple[DataLoader[Any], DataLoader[Any]]:
    bug, data = config["bug"], table(config)
    held_out = range(VAL_ROWS) if bug == "A33" else range(TRAIN_ROWS, TRAIN_ROWS + VAL_ROWS)
    size = config["batch_size"] // config["accumulation"]
    order = torch.Generator().manual_seed(config["seed"] + epoch_seed)
    shuffled = bug != "A10" and config["shuffle"]
    train = DataLoader(Rows(data, bug, order), size, shuffle=shuffled, drop_last=True, generator=order)
    if bug == "E2":  # the rows of validation are not standardised
        data = TensorDataset(120 + 50 * data.tensors[0], data.tensors[1])
    return train, DataLoader(Subset(data, held_out), size if config["reduction"] == "sum" else VAL_ROWS)


def loader_of(config: Config) -> DataLoader[Any]:
    return loaders(config)[0]


def validation(config: Config) -> DataLoader[Any]:
    return loaders(config)[1]


def configure(bug: str | None, seed: int, steps: int, **changes: Any) -> Config:
    kind = "number" if bug in REGRESSIONS else "yes-or-no" if bug in BINARY else "class"
    config = intended(
        "mlp",
        bug,
        seed,
        steps,
        kind=kind,
        lr_max=2e-3,
        batch_size=BATCH,
        weight_decay=0.01,
        depth=3,
        dropout=0.2,
        batch_norm=bug in ("A2", "A3", "B23"),
        reduction="mean",
        dtype="fp16" if bug in HALF else "fp32",
        loss_scale=2.0**28 if bug == "B20" else 2.0**16,
    )
    if kind == "class":
        config["num_classes"] = CLASSES
    if bug == "B23":
        config["batch_size"] = 2
    return config | changes


def task(config: Config) -> steadyrun.Task:
    bug = config["bug"]
    torch.manual_seed(config["seed"])
    model = MLP(config)
    if bug == "A29":
        model.hidden.requires_grad_(False)
    groups: Any = split_decay(model, config["weight_decay"])
    if bug == "A29":
        groups = model.hidden.parameters()
    if bug == "B30":
        groups = model.parameters()
    optimizer = make_optimizer(config["optimizer"], groups, config["lr_max"], config["weight_decay"])
    if bug == "C74":  # meant to be 1e-8
        for group in optimizer.param_groups:
            group["eps"] = 0.1
    if bug == "A27":
        model.head = nn.Linear(WIDTH, CLASSES)
    if bug == "A16":
        epochs = config["total_steps"] * BATCH // TRAIN_ROWS
        scheduler: Any = CosineAnnealingLR(optimizer, T_max=epochs)
    else:
        scheduler = make_scheduler(optimizer, config)
    scaler = None
    if config["dtype"] == "fp16":
        scaler = torch.amp.GradScaler("cpu", init_scale=config["loss_scale"], growth_interval=50)
    built = steadyrun.Task(model, optimizer, make_loss(config), scheduler=scheduler, scaler=scaler)
    built.loader = Batches(partial(endless, config, 0), config["accumulation"])
    built.val_loader, built.config = validation(config), config
    built.train_step = lambda task, batch: step_of(task, batch, config)[0]
    return built


def step_of(task: steadyrun.Task, batch: Any, config: Config) -> tuple[Tensor, Tensor | None]:
    """One optimizer step: the undivided loss, and the gradient norm before clipping."""
    model, optimizer, scaler, bug = task.model, task.optimizer, task.scaler, config["bug"]
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config["dtype"])
    parts = batch if config["accumulation"] > 1 else [batch]
    losses = []
    for each in parts:
        with torch.autocast("cpu", dtype=kind or torch.bfloat16, enabled=kind is not None):
            loss = task.loss_fn(model, each)
        losses.append(loss.detach())
        if bug != "A19":
            loss = loss / len(parts)
        (loss if scaler is None else scaler.scale(loss)).backward()
    if bug == "A31":
        optimizer.zero_grad()
    norm = None
    if config["clip"] is not None and bug != "B2":
        if scaler is not None and bug != "B1":
            scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    if bug == "B2":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    per_epoch = TRAIN_ROWS // config["batch_size"]
    epoch_ends = task.step % per_epoch == per_epoch - 1
    if task.scheduler is not None and config["schedule"] != "plateau":
        if epoch_ends or (bug != "A17" and config["schedule"] != "step-per-epoch"):
            task.scheduler.step()
        for _ in range(3 if bug == "A15" else 0):  # every one of four processes steps it
            task.scheduler.step()
    if bug not in ("A1", "A31"):
        optimizer.zero_grad()
    return torch.stack(losses).mean(), norm


@torch.no_grad()
def evaluate(model: nn.Module, loss_fn: Any, loader: DataLoader[Any], bug: str | None) -> Tensor:
    if bug != "A3":
        model.eval()
    loss = torch.stack([loss_fn(model, batch) for batch in loader]).mean()
    if bug != "A2":
        model.train()
    return loss


def endless(config: Config, first: int) -> Any:
    """Batches from step `first` on: every epoch has an order of its own."""
    per_epoch = TRAIN_ROWS // config["batch_size"]
    epoch, skip = divmod(first, per_epoch)
    skip *= config["accumulation"]
    labels = None
    while True:
        for number, batch in enumerate(loaders(config, 1000 * epoch)[0]):
            labels = batch[1] if labels is None else labels
            if number >= skip:
                yield [batch[0], labels] if config["bug"] == "E3" else batch  # labels taken before the loop
        epoch, skip = epoch + 1, 0


def train(
    folder: Path,
    bug: str | None = None,
    seed: int = 1,
    *,
    steps: int = 400,
    record: Record = steadyrun.record,
    **changes: Any,
) -> Log:
    config = configure(bug, seed, steps, **changes)
    log, saved = Log(log_file(folder)), None
    for first, last in attempts(config):
        built = task(config)
        if saved is not None:
            resume(built, saved, config)
        train_loader, val_loader = loader_of(config), validation(config)
        start = 0 if bug == "B21" else first
        data = iter(Batches(partial(endless, config, start), config["accumulation"]))
        with record(folder, config=config) as run:
            run.watch(
                built.model,
                built.optimizer,
                scheduler=built.scheduler,
                loss_fn=built.loss_fn,
                scaler=built.scaler,
                loader=train_loader,
            )
            for step in range(first, last):
                built.step = step
                batch = next(data)
                rate = built.optimizer.param_groups[0]["lr"]
                loss, norm = step_of(built, batch, config)
                log.step(step, loss, rate, norm)
                run.step(loss, batch=batch)
                if step % config["val_every"] == config["val_every"] - 1:
                    val_loss = evaluate(built.model, built.loss_fn, val_loader, bug)
                    if config["schedule"] == "plateau":
                        built.scheduler.step(val_loss)
                    log.val(val_loss)
                    run.val(val_loss, batches=val_loader)
        saved = state_of(built)
    log.write()
    return log
