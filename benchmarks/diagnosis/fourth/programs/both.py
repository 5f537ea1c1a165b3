"""Two tasks at once, class and value, from one table; a loop over a DataLoader as tutorials have it, by epochs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from diagnosis.fourth.loop import declared, drawn, half_mixed, spoil_start
from diagnosis.harness import Config, Log, Record, log_file
from diagnosis.third.loop import shuffled

COLUMNS, CLASSES, TRAIN_ROWS, VAL_ROWS = 12, 5, 2400, 600


@cache
def table(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Columns, a class and a value, which depend on the same three hidden things."""
    fixed, draw = drawn(71), drawn(seed)
    x = torch.randn(TRAIN_ROWS + VAL_ROWS, COLUMNS, generator=draw)
    hidden = torch.tanh(x @ torch.randn(COLUMNS, 6, generator=fixed) / 2)
    scores = 3 * hidden @ torch.randn(6, CLASSES, generator=fixed)
    label = (scores + 0.4 * torch.randn(scores.shape, generator=draw)).argmax(dim=1)
    value = hidden[:, 0] * hidden[:, 1] + hidden[:, 2] + 0.1 * torch.randn(len(x), generator=draw)
    return x, label, 40 * value + 300


def dataset(config: Config, *, train: bool) -> TensorDataset:
    bug = config["bug"]
    x, label, value = (part[:TRAIN_ROWS] if train else part[TRAIN_ROWS:] for part in table(config["seed"]))
    if not (bug == "values-in-raw-units" or (bug == "val-in-raw-units" and not train)):
        value = (value - 300) / 40
    if train and bug == "labels-permuted":
        label, value = shuffled(label, 7), shuffled(value, 7)
    if train and bug == "values-of-other-rows":
        value = shuffled(value, 7)
    if train and bug == "half-of-the-labels-wrong":
        label = half_mixed(label, 5)
    if train and bug == "sorted":
        order = label.argsort(stable=True)
        x, label, value = x[order], label[order], value[order]
    if train and bug == "log-of-values":  # logarithm(0) for the lowest
        value = (value - value.min()).log()
    if not train and bug == "val-classes-sorted-otherwise":
        label = (label + 2) % CLASSES
    return TensorDataset(x, label, value)


class Net(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bug = config["bug"]
        self.trunk = nn.Sequential(
            *(nn.Linear(COLUMNS, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(config["dropout"])),
            *(nn.Linear(64, 64), nn.ReLU()),
        )
        self.kind, self.value = nn.Linear(64, CLASSES), nn.Linear(64, 1)
        if self.bug == "trunk-frozen":
            self.trunk.requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.trunk(x)
        x = x.detach() if self.bug == "cut-off" else x
        value = self.value(x)
        return self.kind(x), value if self.bug == "broadcast" else value.squeeze(1)


def terms(config: Config, model: nn.Module, batch: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The loss of the class, and that of the value with its weight."""
    x, label, value = batch
    kind, said = model(x)
    of_kind = cross_entropy(kind, label, label_smoothing=config["smoothing"] if model.training else 0.0)
    return of_kind, config["value_weight"] * mse_loss(said.float(), value)


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: list[Tensor]) -> Tensor:
        of_kind, of_value = terms(config, model, batch)
        if bug == "class-term-forgotten":
            return of_value
        if bug == "value-sign":
            return of_kind - 0.1 * of_value
        return of_kind + of_value

    return loss_fn


def loader_of(config: Config) -> DataLoader[Any]:
    """The loader of the training."""
    data, shuffle = dataset(config, train=True), config["bug"] != "sorted"
    chance = torch.Generator().manual_seed(config["seed"])
    return DataLoader(data, config["batch_size"], shuffle=shuffle, drop_last=True, num_workers=0, generator=chance)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 450, "lr_max": 4e-3, "batch_size": 32, "steps_per_epoch": 75, "num_classes": CLASSES}
    own["weight_decay"] = 0.0  # Adam as it comes
    own |= {"value_weight": 1000.0 if bug == "value-term-x1000" else 1.0, "clip": None, "schedule": "one-cycle"}
    return declared("both", bug, seed, changes, **own, val_every=75)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    model = Net(config)
    spoil_start(model, config)
    if config["optimizer"] == "sgd":
        optimizer: Any = torch.optim.SGD(model.parameters(), config["lr_max"], momentum=0.95, nesterov=True)
    else:
        optimizer = torch.optim.Adam(model.parameters(), config["lr_max"], **config["optimizer_settings"])
    if config["bug"] == "head-replaced":  # the optimizer has the old head
        model.kind = nn.Linear(64, CLASSES)
    schedule: Any = None
    if config["schedule"] == "one-cycle":
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=config["lr_max"],
            total_steps=config["total_steps"] + 1,
        )
    if config["schedule"] == "exponential":
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.6)
    built = steadyrun.Task(model, optimizer, make_loss(config), scheduler=schedule)
    built.loader, built.config = loader_of(config), config
    built.val_loader = DataLoader(dataset(config, train=config["bug"] == "validates-on-training"), 200)
    built.train_step = lambda task, batch: step_of(task, batch, config)
    return built


def step_of(built: steadyrun.Task, batch: list[Tensor], config: Config) -> Tensor:
    """One batch forth and back."""
    bug, optimizer = config["bug"], built.optimizer
    last = built.step % config["steps_per_epoch"] == config["steps_per_epoch"] - 1
    if bug not in ("zeroed-once-an-epoch", "stepped-once-an-epoch") or built.step % config["steps_per_epoch"] == 0:
        optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["dtype"] == "bf16"):
        loss = built.loss_fn(built.model, batch)
    loss.backward()
    if bug == "clipped-by-value":
        nn.utils.clip_grad_value_(built.model.parameters(), 1e-9)
    if config["clip"] is not None:
        nn.utils.clip_grad_norm_(built.model.parameters(), config["clip"])
    if bug != "stepped-once-an-epoch" or last:
        optimizer.step()
    if built.scheduler is not None and (config["schedule"] == "one-cycle" or last or bug == "decayed-at-every-batch"):
        built.scheduler.step()
    return loss.detach()


@torch.no_grad()
def evaluate(built: steadyrun.Task, bug: str | None) -> Tensor:
    if bug != "validated-in-training-mode":
        built.model.eval()
    losses = [built.loss_fn(built.model, batch) for batch in built.val_loader]
    if bug != "eval-left-on":
        built.model.train()
    return torch.stack(losses).mean()


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    built, log = task(config), Log(log_file(folder))
    with record(folder, config=config) as run:
        run.watch(built.model, built.optimizer, scheduler=built.scheduler, loss_fn=built.loss_fn)
        step = 0
        while step < config["total_steps"]:
            for batch in built.loader:
                if step == config["total_steps"]:
                    break
                built.step, rate = step, built.optimizer.param_groups[0]["lr"]
                loss = step_of(built, batch, config)
                log.step(step, loss, rate, None)
                run.step(loss, batch=batch)
                if step % config["val_every"] == config["val_every"] - 1:
                    val_loss = evaluate(built, bug)
                    log.val(val_loss)
                    run.val(val_loss, batches=list(built.val_loader))
                step += 1
    log.rows[-1]["quality"] = quality(built.model.eval(), config)
    log.write()
    return log


@torch.no_grad()
def quality(model: nn.Module, config: Config) -> float:
    """The mean of the accuracy and of the explained variance, on held-out rows."""
    x, label, value = dataset(config, train=False).tensors
    if config["bug"] == "val-in-raw-units":
        value = (value - 300) / 40
    kind, said = model(x)
    explained = 1 - (said.reshape(-1) - value).square().mean() / value.var()
    return float(((kind.argmax(dim=1) == label).float().mean() + explained.clamp(min=-1)) / 2)
