"""The loop of the healthy programs: each of them says how it is built, and this trains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.harness import Config, Log, Record, log_file

Configure = Callable[..., Config]


def declared(program: str, kind: str, seed: int, steps: int, **own: Any) -> Config:
    config: Config = {"program": program, "kind": kind, "bug": None, "seed": seed, "total_steps": steps}
    config |= {"lr_max": 2e-3, "clip": None, "weight_decay": 0.01, "zero_grad": "head", "val_every": 50, "drawn_at": 0}
    return config | own


def step_of(task: steadyrun.Task, batch: Any, config: Config) -> tuple[Tensor, Tensor | None]:
    """One optimizer step: the loss, and the gradient norm before clipping."""
    model, optimizer = task.model, task.optimizer
    if config["zero_grad"] == "head":
        optimizer.zero_grad()
    loss = task.loss_fn(model, batch)
    loss.backward()
    norm = None
    if config["clip"] is not None:
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    optimizer.step()
    if task.scheduler is not None:
        task.scheduler.step()
    if config["zero_grad"] == "end":
        optimizer.zero_grad()
    if config["zero_grad"] == "keep":
        optimizer.zero_grad(set_to_none=False)
    return loss.detach(), norm


def trainer(
    configure: Configure,
    task: Callable[[Config], steadyrun.Task],
    validation: Callable[[Config], Iterable[Any]],
    after_step: Callable[[steadyrun.Task, Config], None] | None = None,
) -> Callable[..., Log]:
    """`train` of a program, from the parts that it is made of."""

    def train(
        folder: Path, _bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
    ) -> Log:
        config = configure(seed, **changes)
        built, log = task(config), Log(log_file(folder))
        data = iter(built.loader or ())
        with record(folder, config=config) as run:
            run.watch(built.model, built.optimizer, scheduler=built.scheduler, loss_fn=built.loss_fn)
            for step in range(config["total_steps"]):
                built.step, batch = step, next(data)
                rate = built.optimizers[0].param_groups[0]["lr"]
                if built.train_step is None:
                    loss, norm = step_of(built, batch, config)
                else:
                    loss, norm = built.train_step(built, batch), None
                if after_step is not None:
                    after_step(built, config)
                log.step(step, loss, rate, norm)
                run.step(loss, batch=batch)
                held_out = list(validation(config | {"drawn_at": step})) if validates(config, step) else []
                if held_out:
                    val_loss = evaluate(built, held_out)
                    log.val(val_loss)
                    run.val(val_loss, batches=held_out)
        log.write()
        return log

    return train


def validates(config: Config, step: int) -> bool:
    return step % config["val_every"] == config["val_every"] - 1


@torch.no_grad()
def evaluate(built: steadyrun.Task, held_out: list[Any]) -> Tensor:
    built.model.eval()
    loss = torch.stack([built.loss_fn(built.model, batch) for batch in held_out]).mean()
    built.model.train()
    return loss
