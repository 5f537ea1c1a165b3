"""The training loop of the programs with other objectives, and what they share: pictures, batches, a measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.harness import Batches, Config, Log, Record, log_file
from diagnosis.second.loop import rows_in_order

CLASSES = 5


class Objective:
    """A loss that keeps its terms for the log."""

    def __init__(self, config: Config) -> None:
        self.config, self.bug = config, config["bug"]
        self.terms: dict[str, float] = {}

    def __call__(self, model: Any, batch: Any) -> Tensor:
        raise NotImplementedError

    def keep(self, **terms: Tensor) -> None:
        """Keep the terms of this batch under the names that are logged."""
        self.terms = {name: float(term.detach()) for name, term in terms.items()}


def declared(program: str, bug: str | None, seed: int, changes: Config, **own: Any) -> Config:
    """What a program declares: common settings, its own, then the changes of the case."""
    config: Config = {"program": program, "bug": bug, "seed": seed, "optimizer": "adam", "weight_decay": 0.0}
    config |= {"schedule": "constant", "warmup_steps": 0, "accumulation": 1, "val_every": 50, "clip": None}
    config |= own | changes
    config["total_steps"] = config.pop("steps")
    return config


def plain_step(task: steadyrun.Task, batch: Any) -> Tensor:
    """One optimizer step of a program with one optimizer."""
    (optimizer,) = task.optimizers
    optimizer.zero_grad()
    loss = task.loss_fn(task.model, batch)
    loss.backward()
    clip = (task.config or {})["clip"]
    if clip is not None:
        nn.utils.clip_grad_norm_(task.model.parameters(), clip)
    optimizer.step()
    return loss.detach()


def assemble(
    config: Config,
    model: nn.Module,
    optimizer: Any,
    loss_fn: Objective,
    batches: Callable[[Config], Iterator[Any]],
    held_out: list[Any],
    step: Callable[[steadyrun.Task, Any], Tensor] = plain_step,
) -> steadyrun.Task:
    """Put a program together."""
    return steadyrun.Task(
        model,
        optimizer,
        loss_fn,
        train_step=step,
        loader=Batches(lambda: batches(config)),
        val_loader=held_out,
        config=config,
    )


@torch.no_grad()
def evaluate(task: steadyrun.Task, held_out: list[Any]) -> Tensor:
    """The mean validation loss."""
    task.model.eval()
    loss = torch.stack([task.loss_fn(task.model, batch) for batch in held_out]).mean()
    task.model.train()
    return loss


def trainer(
    configure: Callable[..., Config],
    task: Callable[[Config], steadyrun.Task],
    quality: Callable[[steadyrun.Task, Config], float],
) -> Callable[..., Log]:
    """`train` of a program, from the parts that it is made of."""

    def train(
        folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
    ) -> Log:
        config = configure(bug, seed, **changes)
        log, built = Log(log_file(folder)), task(config)
        loss_fn: Any = built.loss_fn
        take, data, held_out = built.train_step, iter(built.loader or ()), list(built.val_loader or ())
        assert take is not None
        with record(folder, config=config) as run:
            run.watch(built.model, built.optimizer, loss_fn=loss_fn)
            for step in range(config["total_steps"]):
                built.step, batch = step, next(data)
                rate = built.optimizers[0].param_groups[0]["lr"]
                loss = take(built, batch)
                log.step(step, loss, rate, None)
                run.step(loss, batch=batch)
                run.log(**loss_fn.terms)
                if held_out and step % config["val_every"] == config["val_every"] - 1:
                    val_loss = evaluate(built, held_out)
                    log.val(val_loss)
                    run.val(val_loss, batches=held_out)
        built.model.eval()
        with torch.no_grad():
            log.rows[-1]["quality"] = quality(built, config)
        log.write()
        return log

    return train


def drawn(seed: int) -> torch.Generator:
    """Chance that depends on the seed alone."""
    return torch.Generator().manual_seed(seed)


def pictures(seed: int, count: int, size: int) -> tuple[Tensor, Tensor]:
    """Pictures of a disc, a square, a cross, a ring or a diagonal, from 0 to 1, and which of them it is."""
    draw = drawn(seed)
    kind = torch.randint(CLASSES, (count,), generator=draw)
    middle = 3.5 + (size - 8) * torch.rand(count, 2, 1, 1, generator=draw)
    radius = (2.2 + 1.3 * torch.rand(count, generator=draw))[:, None, None]
    down = torch.arange(size)[:, None] - middle[:, 0]
    across = torch.arange(size)[None, :] - middle[:, 1]
    far, box = (down.square() + across.square()).sqrt(), torch.maximum(down.abs(), across.abs())
    thin = torch.minimum(down.abs(), across.abs())
    inside = torch.stack(
        [
            radius - far,
            0.9 * radius - box,
            torch.minimum(0.8 - thin, radius - box),
            torch.minimum(radius - far, far - radius + 1.4),
            torch.minimum(1.0 - (down - across).abs(), radius - box),
        ]
    )
    return (inside[kind, torch.arange(count)] + 0.5).clamp(0, 1).unsqueeze(1), kind


def rows(count: int, config: Config) -> Iterator[Tensor]:
    """Row numbers of one batch after another."""
    return rows_in_order(count, config, 0)


def apart(made: Tensor, real: Tensor) -> float:
    """The sliced Wasserstein distance between two sets of as many examples, infinite if one is not finite."""
    made, real = made.flatten(1), real.flatten(1)
    if not bool(made.isfinite().all()):
        return float("inf")
    ways = nn.functional.normalize(torch.randn(made.shape[1], 200, generator=drawn(5)), dim=0)
    return float(((made @ ways).sort(dim=0).values - (real @ ways).sort(dim=0).values).abs().mean())
