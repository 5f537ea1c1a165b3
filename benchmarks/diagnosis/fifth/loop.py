"""The plain loop of the post-training programs: what they declare, one step, what is logged and scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

import steadyrun
from diagnosis.harness import Config, Log, Record, intended, log_file, make_scheduler

RATES = {"rate-x100": 100.0, "rate-x30": 30.0, "adapter-rate-a-300th": 1 / 300}


def declared(program: str, bug: str | None, seed: int, changes: Config, **own: Any) -> Config:
    """What a program declares; a rate that is far off is declared as it is used."""
    settings: Config = {"steps": 150, "weight_decay": 0.0, "warmup_steps": 0, "schedule": "linear"} | own | changes
    config = intended(program, bug, seed, settings.pop("steps"), **settings)
    factor = RATES.get(bug or "", 1.0)
    return config | {name: config[name] * factor for name in ("lr_max", "lr_min")}


@dataclass
class Built:
    """A program put together: its loss may leave numbers in `numbers`, which are logged beside it."""

    model: nn.Module
    optimizer: Optimizer
    loss_fn: Callable[[nn.Module, Any], Tensor]
    batches: Iterator[Any]
    quality: Callable[[], float]
    held_out: list[Any] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)
    before_validation: Callable[[], None] = lambda: None
    hands_batch: bool = True


def adamw(model: nn.Module, config: Config) -> Optimizer:
    """AdamW over all that is trainable."""
    trainable = [each for each in model.parameters() if each.requires_grad]
    return AdamW(trainable, lr=config["lr_max"], weight_decay=config["weight_decay"])


def run_through(built: Built, config: Config, folder: Path, record: Record = steadyrun.record) -> Log:
    """Train, record, and score at the end."""
    log, model, optimizer = Log(log_file(folder)), built.model, built.optimizer
    scheduler = make_scheduler(optimizer, config)
    trainable = [each for group in optimizer.param_groups for each in group["params"]]
    with record(folder, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler, loss_fn=built.loss_fn, **built.watched)
        for step in range(config["total_steps"]):
            batch, rate = next(built.batches), optimizer.param_groups[0]["lr"]
            loss = built.loss_fn(model, batch)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(trainable, config["clip"])
            numbers = dict(built.numbers)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            optimizer.zero_grad()
            log.step(step, loss, rate, norm)
            log.rows[-1] |= numbers
            run.step(loss, batch=batch if built.hands_batch else None)
            if numbers:
                run.log(**numbers)
            if built.held_out and step % config["val_every"] == config["val_every"] - 1:
                built.before_validation()
                model.eval()
                with torch.no_grad():
                    val_loss = torch.stack([built.loss_fn(model, each) for each in built.held_out]).mean()
                model.train()
                log.val(val_loss)
                run.val(val_loss, batches=built.held_out)
    log.rows[-1]["quality"] = built.quality()
    log.write()
    return log


def epochs(count: int, size: int, seed: int) -> Iterator[list[int]]:
    """Numbers of examples, batch after batch, in another order in every epoch."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(count, generator=draw).tolist()
        for first in range(0, count - size + 1, size):
            yield order[first : first + size]
