"""The training loop of the second fleet, with the bugs that do not depend on what is learned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, StepLR

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

RATES = {"rate-too-high": 60.0, "rate-too-low": 1e-3}
# Values that somebody chose: they are declared as they are used.
CHOSEN: dict[str, Config] = {
    "decay-too-high": {"weight_decay": 20.0},
    "dropout-too-high": {"dropout": 0.97},
    "smoothing-too-high": {"smoothing": 0.95},
    "clip-too-tight": {"clip": 1e-5},
    "epsilon-too-large": {"optimizer_settings": {"eps": 10.0}},
    "momentum-too-high": {"optimizer_settings": {"momentum": 0.9995}},
    "betas-swapped": {"optimizer_settings": {"betas": [0.999, 0.9]}},
}
RESUMED = {"optimizer-lost": "B18", "schedule-restarted": "B19"}  # as harness.resume names them


def declared(program: str, bug: str | None, seed: int, changes: Config, **own: Any) -> Config:
    """What a program declares: its own settings, then the changes of the case, then what the bug chooses."""
    steps = changes.pop("steps", own.pop("steps"))
    basis: Config = {
        "weight_decay": 0.01,
        "zero_grad": "end",
        "optimizer_settings": {},
        "smoothing": 0.0,
        "dropout": 0.0,
    }
    config = intended(program, bug, seed, steps, **(basis | own)) | changes
    factor = RATES.get(bug or "", 1.0)
    return config | {name: config[name] * factor for name in ("lr_max", "lr_min")} | CHOSEN.get(bug or "", {})


def optimizer_of(model: nn.Module, config: Config) -> Optimizer:
    """The optimizer over what the program means to train."""
    bug = config["bug"]
    groups = split_decay(copy.deepcopy(model) if bug == "optimizer-of-a-copy" else model, config["weight_decay"])
    if bug == "part-not-in-optimizer":
        part = {id(each) for each in model.get_submodule(config["part"]).parameters()}
        groups = [group | {"params": [each for each in group["params"] if id(each) not in part]} for group in groups]
    groups = [group | config["optimizer_settings"] for group in groups if group["params"]]
    return make_optimizer(config["optimizer"], groups, config["lr_max"], config["weight_decay"])


def scheduler_of(optimizer: Optimizer, config: Config) -> Any:
    """The declared schedule, or the one that a slip has put in its place."""
    bug = config["bug"]
    if bug == "horizon-in-epochs":
        return CosineAnnealingLR(optimizer, T_max=max(1, config["total_steps"] // config["steps_per_epoch"]))
    if bug == "rate-grows":
        return ExponentialLR(optimizer, gamma=1.02)
    if bug == "decayed-too-soon":
        return StepLR(optimizer, step_size=10, gamma=0.3)
    return make_scheduler(optimizer, config)


@torch.no_grad()
def spoil_start(model: nn.Module, config: Config) -> None:
    """Start the weights as the bug does: too wide, all alike, or with one layer far in the negative."""
    bug = config["bug"]
    matrices = [each for each in model.parameters() if each.ndim >= 2 and each.requires_grad]
    if bug == "start-too-wide":
        for each in matrices:
            each.mul_(30.0)
    if bug == "start-all-alike":
        for each in matrices:
            each.fill_(0.01)
    if bug == "dead-units":
        model.get_parameter(config["dead"]).fill_(-30.0)
    if bug == "batchnorm-momentum-0":
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.momentum = 0.0
    if bug == "half-precision":
        model.half()


def assemble(
    config: Config,
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    batches: Callable[[int, nn.Module], Iterator[Any]],
    held_out: list[Any],
) -> steadyrun.Task:
    """Put a program together; `batches(first, model)` gives what each step is given from step `first` on."""
    spoil_start(model, config)
    optimizer = optimizer_of(model, config)
    built = steadyrun.Task(model, optimizer, loss_fn, scheduler=scheduler_of(optimizer, config))
    built.loader = Batches(partial(batches, 0, model), config["accumulation"])
    built.val_loader, built.config = held_out, config
    built.train_step = lambda task, batch: step_of(task, batch, config)[0]
    return built


def step_of(task: steadyrun.Task, batch: Any, config: Config) -> tuple[Tensor, Tensor | None]:
    """One optimizer step: the undivided loss, and the gradient norm before clipping."""
    model, optimizer, bug = task.model, task.optimizer, config["bug"]
    parts, losses = batch if config["accumulation"] > 1 else [batch], []
    if bug == "optimizer-rebuilt":
        optimizer.state.clear()
    if config["zero_grad"] == "start" and bug != "never-zeroed":
        optimizer.zero_grad()
    for part in parts:
        if bug == "micro-batches-lost":
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["dtype"] == "bf16"):
            loss = task.loss_fn(model, part)
        (loss if bug == "not-divided" else loss / len(parts)).backward()
        losses.append(loss.detach())
    if bug == "erased":
        optimizer.zero_grad()
    norm = None
    if config["clip"] is not None and bug != "clipped-after-step":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    optimizer.step()
    if bug == "clipped-after-step":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    epoch_ends = task.step % config["steps_per_epoch"] == config["steps_per_epoch"] - 1
    by_epoch = bug == "stepped-per-epoch" or config["schedule"] == "step-per-epoch"
    if task.scheduler is not None and config["schedule"] != "plateau" and (epoch_ends or not by_epoch):
        task.scheduler.step()
    if config["zero_grad"] == "end" and bug != "never-zeroed":
        optimizer.zero_grad()
    return torch.stack(losses).mean(), norm


@torch.no_grad()
def evaluate(built: steadyrun.Task, held_out: list[Any], bug: str | None, model: nn.Module) -> Tensor:
    """The mean validation loss."""
    if bug != "validated-in-training-mode":
        model.eval()
    loss = torch.stack([built.loss_fn(model, batch) for batch in held_out]).mean()
    if bug != "eval-left-on":
        model.train()
    return loss


def restore(built: steadyrun.Task, saved: dict[str, Any], initial: dict[str, Any], config: Config) -> None:
    """Load the checkpoint into newly built objects; some bugs load less of it, or another one."""
    bug, state = config["bug"], saved["model"]
    if bug == "old-weights":
        state = initial
    if bug == "partly-loaded":
        fresh = built.model.state_dict()
        state = {name: fresh[name] if name.startswith(config["part"]) else value for name, value in state.items()}
    resume(built, saved | {"model": state}, config | {"bug": RESUMED.get(bug or "")})


@dataclass(frozen=True)
class Extras:
    """What a program does beside the plain loop.

    `declares` makes what is recorded of the config; `after` runs after every step and gives what is logged; `carried`
    takes over at a resume what no checkpoint holds; `validated` is the model that is validated and scored.
    """

    hands_batch: bool = True
    declares: Callable[[Config], Config] = lambda config: config
    after: Callable[[steadyrun.Task, Config], dict[str, float]] = lambda _task, _config: {}
    carried: Callable[[steadyrun.Task, steadyrun.Task, Config], None] = lambda _old, _new, _config: None
    validated: Callable[[steadyrun.Task], nn.Module] = lambda task: task.model


def trainer(
    configure: Callable[..., Config],
    task: Callable[[Config], steadyrun.Task],
    batches: Callable[[Config, int, nn.Module], Iterator[Any]],
    quality: Callable[[nn.Module, Config], float],
    extras: Extras | None = None,
) -> Callable[..., Log]:
    """`train` of a program, from the parts that it is made of."""
    extras = extras or Extras()

    def train(
        folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
    ) -> Log:
        config = configure(bug, seed, **changes)
        log, saved, built = Log(log_file(folder)), None, None
        initial = copy.deepcopy(task(config).model.state_dict()) if bug == "old-weights" else {}
        for first, last in attempts(config):
            before, built = built, task(config)
            if saved is not None:
                restore(built, saved, initial, config)
                extras.carried(before, built, config)
            begin = 0 if bug == "data-restarted" else first
            data = iter(Batches(partial(batches, config, begin, built.model), config["accumulation"]))
            held_out = list(built.val_loader or ())
            with record(folder, config=extras.declares(config)) as run:
                run.watch(built.model, built.optimizer, scheduler=built.scheduler, loss_fn=built.loss_fn)
                for step in range(first, last):
                    built.step, batch = step, next(data)
                    rate = built.optimizer.param_groups[0]["lr"]
                    loss, norm = step_of(built, batch, config)
                    log.step(step, loss, rate, norm)
                    run.step(loss, batch=batch if extras.hands_batch else None)
                    if values := extras.after(built, config):
                        run.log(**values)
                    if held_out and step % config["val_every"] == config["val_every"] - 1:
                        val_loss = evaluate(built, held_out, bug, extras.validated(built))
                        if config["schedule"] == "plateau":
                            built.scheduler.step(val_loss)
                        log.val(val_loss)
                        run.val(val_loss, batches=held_out)
            saved = copy.deepcopy(state_of(built))
        log.rows[-1]["quality"] = quality(extras.validated(built).eval(), config)
        log.write()
        return log

    return train


def rows_in_order(count: int, config: Config, first: int) -> Iterator[Tensor]:
    """Row numbers of one micro-batch after another, every epoch in an order of its own, from step `first` on."""
    bug, size = config["bug"], config["batch_size"] // config["accumulation"]
    if bug == "tiny-data":  # a slice for debugging that stayed
        count = min(count, 2 * config["batch_size"])
    per_epoch = count // size
    epoch, skip = divmod(first * config["accumulation"], per_epoch)
    while True:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(config["seed"] + 1000 * epoch))
        for number in range(skip, per_epoch):
            yield order[number * size : (number + 1) * size]
            if bug == "same-batch":  # next(iter(loader)), with a seed
                break
        epoch, skip = (epoch if bug == "same-batch" else epoch + 1), 0
