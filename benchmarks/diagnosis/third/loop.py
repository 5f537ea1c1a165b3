"""What the third fleet adds to the loop of the second: its own sizes, and programs that declare little."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.harness import Config
from diagnosis.second import loop as second

RATES = {"rate-x25": 25.0, "rate-a-300th": 1 / 300}
# Values that somebody chose: they are declared as they are used.
CHOSEN: dict[str, Config] = {
    "decay-of-5": {"weight_decay": 5.0},
    "dropout-of-90": {"dropout": 0.9},
    "smoothing-of-80": {"smoothing": 0.8},
    "clip-at-1e-4": {"clip": 1e-4},
    "epsilon-of-1": {"optimizer_settings": {"eps": 1.0}},
    "momentum-of-0.998": {"optimizer_settings": {"momentum": 0.998}},
}


def declared(program: str, bug: str | None, seed: int, changes: Config, **own: Any) -> Config:
    """What a program declares, with the sizes of this fleet; `changes` is kept for those that declare little."""
    config = second.declared(program, bug, seed, dict(changes), **own)
    factor = RATES.get(bug or "", 1.0)
    config |= {name: config[name] * factor for name in ("lr_max", "lr_min")} | CHOSEN.get(bug or "", {})
    if bug == "warmup-beyond-the-end":
        config["warmup_steps"] = 100 * config["total_steps"]
    return config | {"changes": dict(changes)}


def little(config: Config) -> Config:
    """The few things that many people write down."""
    return {name: config[name] for name in ("program", "bug", "seed", "batch_size", "changes")} | {
        "lr": config["lr_max"]
    }


def whole(config: Config, configure: Callable[..., Config]) -> Config:
    """The whole config, also where only a little of it was declared."""
    return config if "total_steps" in config else configure(config["bug"], config["seed"], **config["changes"])


def assemble(
    config: Config,
    model: nn.Module,
    loss_fn: Callable[..., Tensor],
    batches: Callable[[int, nn.Module], Iterator[Any]],
    held_out: list[Any],
) -> steadyrun.Task:
    """Put a program together, after this fleet's bugs have changed how its weights start."""
    spoil_start(model, config)
    return second.assemble(config, model, loss_fn, batches, held_out)


@torch.no_grad()
def spoil_start(model: nn.Module, config: Config) -> None:
    """Start the weights as the bug does."""
    bug = config["bug"]
    matrices = [each for each in model.parameters() if each.ndim >= 2 and each.requires_grad]
    if bug == "start-x12":
        for each in matrices:
            each.mul_(12.0)
    if bug == "start-at-zero":
        for each in matrices:
            each.zero_()
    if bug == "weights-in-bf16":
        model.bfloat16()


def shuffled(rows: Tensor, seed: int) -> Tensor:
    """The rows in another order."""
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]


def pairs(size: int, *parts: Tensor) -> list[list[Tensor]]:
    """Batches of a fixed size, in order."""
    return [list(group) for group in zip(*(part.split(size) for part in parts), strict=True)]
