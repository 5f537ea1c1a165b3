"""Lightning under either of its names, and what callback and logger share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from steadyrun.recording.run import Run

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    class FittedModule(nn.Module):
        """What is read off a LightningModule, whichever package it comes from."""

        automatic_optimization: bool


class SchedulerConfig(Protocol):
    """How Lightning keeps a scheduler."""

    scheduler: object


class FittingTrainer(Protocol):
    """What is read off a Lightning Trainer."""

    accumulate_grad_batches: int
    callback_metrics: Mapping[str, Tensor]
    callbacks: Sequence[object]
    checkpoint_callbacks: Sequence[object]
    default_root_dir: str
    estimated_stepping_batches: float
    fast_dev_run: bool
    fit_loop: Any  # its count of steps under manual optimization is private
    global_step: int
    gradient_clip_algorithm: object
    gradient_clip_val: float | None
    log_dir: str | None
    loggers: Sequence[object]
    lr_scheduler_configs: Sequence[SchedulerConfig]
    max_epochs: int | None
    max_steps: int
    optimizers: Sequence[Optimizer]
    precision: object
    precision_plugin: object
    sanity_checking: bool
    train_dataloader: object
    world_size: int


def _package() -> ModuleType:
    """`lightning.pytorch`, or `pytorch_lightning` if the program uses it or only it is installed."""
    import importlib

    names = ["lightning.pytorch", "pytorch_lightning"]
    if names[0] not in sys.modules and names[1] in sys.modules:
        names.reverse()
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ImportError("SteadyrunCallback and SteadyrunLogger need Lightning: pip install 'steadyrun[lightning]'")


_lightning = _package()
_loggers = __import__(f"{_lightning.__name__}.loggers", fromlist=["Logger"])

Callback: Any = _lightning.Callback
Logger: Any = _loggers.Logger
rank_zero_only: Any = __import__(f"{_lightning.__name__}.utilities", fromlist=["rank_zero_only"]).rank_zero_only


def val_loss_among(names: Iterable[str]) -> str | None:
    """The first name that looks like a validation loss: `val_loss`, `val/loss`, `valid_loss_epoch`, `loss/val`."""
    for name in names:
        low = name.lower()
        if "val" in low and "loss" in low and "train" not in low and not low.endswith("_step"):
            return name
    return None


def log(run: Run, values: Mapping[str, object], step: int | None = None) -> None:
    """Keep the user's own numbers; a name that `run.log` knows otherwise gets a prefix."""
    taken = {"step", "loss", "val_loss"}
    run.log(step, **{f"logged_{name}" if name in taken else name: value for name, value in values.items()})
