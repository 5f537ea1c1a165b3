"""What the programs share: declared intent, a plain log, a recorder that does nothing, schedules, resuming."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    StepLR,
)

import steadyrun

Config = dict[str, Any]
RATES = {"A6": 50, "A7": 1 / 1000, "C71": 1 / 100}
SIZES: dict[str, Config] = {"C73": {"weight_decay": 50.0}, "C75": {"dropout": 0.9}, "C76": {"smoothing": 0.9}}
Record = Callable[..., Any]
"""`steadyrun.record`, or something that is called like it."""


class Silent:
    """Records nothing: the same program without steadyrun."""

    def __init__(self, _folder: Path, config: Config | None = None, **_: Any) -> None:
        self.config = config

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_arguments, **_settings: None


class Log:
    """What an ordinary logger keeps: one row per step, in a file that survives an exception."""

    def __init__(self, path: Path) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", "utf-8")

    def step(self, step: int, loss: torch.Tensor, rate: float, grad_norm: torch.Tensor | None) -> None:
        row: dict[str, Any] = {"step": step, "loss": float(loss.detach()), "lr": rate}
        if grad_norm is not None:
            row["grad_norm"] = float(grad_norm)
        self.rows.append(row)
        if len(self.rows) % 50 == 0:
            self.write()

    def val(self, loss: torch.Tensor) -> None:
        self.rows[-1]["val_loss"] = float(loss)

    def write(self) -> None:
        self._path.write_text("".join(json.dumps(row) + "\n" for row in self.rows), "utf-8")

    @staticmethod
    def read(path: Path) -> list[dict[str, Any]]:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def log_file(folder: Path) -> Path:
    """The plain log lies beside the run directory, which belongs to steadyrun."""
    return folder.with_name(folder.name + ".log.jsonl")


def attempts(config: Config) -> Iterator[tuple[int, int]]:
    """First step and end of every attempt: two where the program is stopped and resumed."""
    steps, middle = config["total_steps"], config.get("resume_at")
    yield from [(0, steps)] if middle is None else [(0, middle), (middle, steps)]


def make_optimizer(name: str, groups: Any, lr: float, weight_decay: float) -> Optimizer:
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=0.9, weight_decay=weight_decay)
    if name == "rmsprop":
        return torch.optim.RMSprop(groups, lr=lr, weight_decay=weight_decay)
    if name == "adafactor":
        return torch.optim.Adafactor(groups, lr=lr, weight_decay=weight_decay)
    return torch.optim.AdamW(groups, lr=lr, weight_decay=weight_decay)


def split_decay(model: nn.Module, weight_decay: float, *, frozen: bool = False) -> list[dict[str, Any]]:
    """Matrices are decayed; biases and norms are not. With `frozen`, also what has no gradient is handed over."""
    parameters = [each for each in model.parameters() if each.requires_grad or frozen]
    return [
        {"params": [each for each in parameters if each.ndim >= 2], "weight_decay": weight_decay},
        {"params": [each for each in parameters if each.ndim < 2], "weight_decay": 0.0},
    ]


def make_scheduler(optimizer: Optimizer, config: Config) -> LRScheduler | ReduceLROnPlateau | None:
    """The schedule that the configuration declares."""
    name, steps, warmup, peak = config["schedule"], config["total_steps"], config["warmup_steps"], config["lr_max"]
    low = config["lr_min"]
    if name == "cosine" and warmup == 0:
        return CosineAnnealingLR(optimizer, T_max=steps, eta_min=low)
    if name in ("cosine", "linear", "constant"):
        return LambdaLR(optimizer, warmup_then(config, low / peak))
    if name == "one-cycle":
        return OneCycleLR(optimizer, max_lr=peak, total_steps=steps)
    if name == "cosine-warm-restarts":
        return CosineAnnealingWarmRestarts(optimizer, T_0=steps // 4, eta_min=low)
    if name == "step-per-epoch":
        return StepLR(optimizer, step_size=1, gamma=0.5)
    if name == "plateau":
        return ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    return None


def warmup_then(config: Config, low: float) -> Callable[[int], float]:
    name, steps, warmup = config["schedule"], config["total_steps"], config["warmup_steps"]
    begin = 0 if config.get("warmup_from_zero") else 1

    def factor(step: int) -> float:
        if step < warmup:
            return (step + begin) / warmup
        progress = min(1.0, (step - warmup) / max(1, steps - warmup))
        if name == "constant":
            return 1.0
        shape = 0.5 * (1 + math.cos(math.pi * progress)) if name == "cosine" else 1 - progress
        return low + (1 - low) * shape

    return factor


def intended(program: str, bug: str | None, seed: int, steps: int, **own: Any) -> Config:
    """What a program declares. A rate that is far off is declared as it is used: it was chosen so."""
    config: Config = {"program": program, "bug": bug, "seed": seed, "total_steps": steps, "optimizer": "adamw"}
    config |= {"warmup_steps": 0, "lr_min": 0.0, "schedule": "cosine", "accumulation": 1, "clip": 1.0}
    config |= {"no_decay": ["bias", "norm"], "dtype": "fp32", "shuffle": True, "val_every": 50} | own
    if bug in RATES:
        factor = RATES[bug]
        config |= {name: config[name] * factor for name in ("lr_max", "lr_min")}
    config |= SIZES.get(bug or "", {})
    if bug == "A19":
        config["accumulation"] = 4
    if bug in ("B18", "B19", "B20", "B21"):
        config["resume_at"] = steps // 2
    return config


def state_of(task: steadyrun.Task) -> dict[str, Any]:
    """What a checkpoint of the program holds."""
    parts = {name: getattr(task, name) for name in ("model", "optimizer", "scheduler", "scaler")}
    return {name: part.state_dict() for name, part in parts.items() if part is not None}


def resume(task: steadyrun.Task, saved: dict[str, Any], config: Config) -> None:
    """Load a checkpoint into newly built objects; some bugs forget a part of it."""
    bug = config["bug"]
    task.model.load_state_dict(saved["model"])
    if bug != "B18":
        task.optimizer.load_state_dict(saved["optimizer"])
    if bug == "B19":  # a new schedule for the rest, which begins as every schedule does
        for group in task.optimizer.param_groups:
            group["lr"] = group["initial_lr"] = config["lr_max"]
        task.scheduler = make_scheduler(task.optimizer, config)
    elif task.scheduler is not None:
        task.scheduler.load_state_dict(saved["scheduler"])
        for group, rate in zip(task.optimizer.param_groups, task.scheduler.get_last_lr(), strict=True):
            group["lr"] = rate
    if task.scaler is not None and bug != "B20":
        task.scaler.load_state_dict(saved["scaler"])


@dataclass(frozen=True)
class Batches:
    """What each optimizer step is given, from the first on; can be gone through again and again."""

    make: Callable[[], Iterator[Any]]
    accumulation: int = 1

    def __iter__(self) -> Iterator[Any]:
        parts = self.make()
        while True:
            group = [next(parts) for _ in range(self.accumulation)]
            yield group if self.accumulation > 1 else group[0]
