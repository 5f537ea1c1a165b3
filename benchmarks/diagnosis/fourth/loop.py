"""What the fourth fleet adds to the loop of the third: its own sizes, starts and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import steadyrun
from diagnosis.harness import Config
from diagnosis.third import loop as third

RATES = {"rate-x15": 15.0, "rate-a-150th": 1 / 150}
# Values that somebody chose: they are declared as they are used.
CHOSEN: dict[str, Config] = {
    "decay-of-2": {"weight_decay": 2.0},
    "dropout-of-85": {"dropout": 0.85},
    "smoothing-of-70": {"smoothing": 0.7},
    "clip-at-1e-3": {"clip": 1e-3},
    "epsilon-of-0.1": {"optimizer_settings": {"eps": 0.1}},
    "momentum-of-0.995": {"optimizer_settings": {"momentum": 0.995}},
    "beta1-of-0.998": {"optimizer_settings": {"betas": [0.998, 0.999]}},
}


def declared(program: str, bug: str | None, seed: int, changes: Config, **own: Any) -> Config:
    """What a program declares, with the sizes of this fleet."""
    config = third.declared(program, bug, seed, changes, **own)
    factor = RATES.get(bug or "", 1.0)
    return config | {name: config[name] * factor for name in ("lr_max", "lr_min")} | CHOSEN.get(bug or "", {})


def assemble(
    config: Config,
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    batches: Callable[[int, nn.Module], Iterator[Any]],
    held_out: list[Any],
) -> steadyrun.Task:
    """Put a program together, after this fleet's bugs have changed its start, and before its schedule."""
    spoil_start(model, config)
    built = third.assemble(config, model, loss_fn, batches, held_out)
    if config["bug"] == "horizon-of-a-tenth":  # the length of an old, short run stayed in the schedule
        end = config["total_steps"] // 10
        for group in built.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        built.scheduler = LambdaLR(built.optimizer, lambda step: max(0.0, 1 - step / end))
    return built


@torch.no_grad()
def spoil_start(model: nn.Module, config: Config) -> None:
    """Start the weights as the bug does."""
    factor = {"start-x5": 5.0, "start-a-hundredth": 0.01}.get(config["bug"] or "")
    if factor is not None:
        for each in model.parameters():
            if each.ndim >= 2 and each.requires_grad:
                each.mul_(factor)


def drawn(seed: int) -> torch.Generator:
    """Chance that depends on the seed alone."""
    return torch.Generator().manual_seed(seed)


def half_mixed(rows: Tensor, seed: int) -> Tensor:
    """The rows, every second one of which belongs to another example."""
    odd = torch.arange(len(rows)) % 2 == 1
    mixed = rows.clone()
    mixed[odd] = third.shuffled(rows[odd], seed)
    return mixed


def few(count: int, *parts: Tensor) -> list[Tensor]:
    """A few examples, repeated until they are as many as before."""
    return [part[:count].repeat(len(part) // count, *[1] * (part.ndim - 1)) for part in parts]
