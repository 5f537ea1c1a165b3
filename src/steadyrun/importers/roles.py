"""Which series of a log is the loss, the learning rate and so on: one table, read from top to bottom.

A name is compared in lower case, with spaces, dots, dashes and colons as `_`; `/` and `_` are alike. Of several names
for one role the one further left in its line is taken; the others keep their own names. `--map loss=train/ce` goes
before the table. What is not in the table is kept under its own name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

STEP, EPOCH, TIME = "step", "epoch", "time"

ROLES: Mapping[str, tuple[str, ...]] = {
    STEP: (
        "global_step", "train_global_step", "trainer_global_step", "iteration", "iter", "num_updates", "step",
        "steps",
        "train_step", "training_step", "iterations", "update", "updates", "s", "iter_num", "_step",
    ),
    EPOCH: ("epoch", "train_epoch", "trainer_epoch", "epochs", "ep"),
    TIME: ("_timestamp", "wall_time", "timestamp", "unix_time", "time"),
    "loss": (
        "loss", "train_loss", "training_loss", "lm_loss", "loss_train", "train_loss_step", "train_train_loss",
        "losses_train",
        "trl", "train_total_loss", "total_loss", "loss_total", "train_loss_total", "loss_step", "train_lm_loss",
        "lm_loss_training", "train_ce_loss", "train_cross_entropy_loss", "train_crossentropyloss",
        "train_cross_entropy",
        "train_nll_loss", "train_mse_loss", "train_mse", "ce_loss", "cross_entropy", "nll_loss", "avg_loss",
        "batch_loss",
        "mean_loss", "train_loss_epoch", "loss_epoch", "train_avg_loss", "epoch_loss", "epoch_train_loss",
        "batch_train_loss", "running_loss", "loss_global_avg_loss", "loss_metrics_global_avg_loss",
    ),
    "val_loss": (
        "val_loss", "valid_loss", "validation_loss", "eval_loss", "loss_val", "loss_valid", "loss_validation",
        "loss_eval",
        "losses_val", "tel", "lm_loss_value", "lm_loss_validation", "val_val_loss", "eval_eval_loss",
        "val_total_loss",
        "validation_total_loss", "val_lm_loss", "valid_nll_loss", "val_ce_loss", "val_cross_entropy", "val_mse",
        "dev_loss",
        "loss_dev", "val_loss_epoch", "validation_loss_epoch", "epoch_val_loss", "avg_val_loss", "eval_avg_loss",
        "eval_cross_entropy_loss", "validation_metrics_loss", "test_loss", "loss_test",
    ),
    "lr": (
        "lr", "learning_rate", "train_lr", "train_learning_rate", "lr_0", "lr_pg0", "lr_group_0", "lr_group0", "lr_1",
        "learning_rate_0", "optim_lr", "optimizer_lr", "optim_learning_rate_group0", "lr_adam", "lr_adamw", "lr_sgd",
        "lr_adam_pg1", "lr_adamw_pg1", "lr_sgd_pg1", "current_lr", "base_lr", "lr_scheduler", "params_lr",
    ),
    "grad_norm": (
        "grad_norm", "gradient_norm", "train_grad_norm", "train_gradient_norm", "gnorm", "train_gnorm", "norm",
        "global_grad_norm", "train_global_grad_norm", "grad_norm_total", "total_grad_norm", "grad_2_0_norm_total",
        "optim_total_grad_norm", "total_norm", "grad_total_norm", "gradnorm", "g_norm", "grad_l2_norm",
    ),
    "loss_scale": ("loss_scale", "train_loss_scale", "scaler_scale", "grad_scale", "amp_scale", "dynamic_loss_scale"),
}  # fmt: skip

SERIES: Mapping[str, str] = {"lr": "lr/0"}
"""Roles whose series have another name in a run directory."""

NEEDED = ("loss", "val_loss", "lr", "grad_norm")
"""A log in which none of these is found cannot be told anything about."""

_EVAL_SET = re.compile(r"(?:eval|val|valid|validation|test)_(.+)_loss")
_GROUP = re.compile(r"lr_(?:pg|group_?)?(\d+)")
_ORDER = {role: {name: place for place, name in enumerate(names)} for role, names in ROLES.items()}


def plain(name: str) -> str:
    """A name as the table compares it."""
    return re.sub(r"[^a-z0-9_]+", "_", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().strip()).strip("_ ") or name


def _spellings(name: str) -> tuple[str, str]:
    """With and without the humps of CamelCase taken apart, an underscore in front kept."""
    flat = re.sub(r"[^a-z0-9_]+", "_", name.lower().strip())
    front = "_" if flat.startswith("_") else ""
    return front + flat.strip("_"), front + plain(name).strip("_")


def rank(role: str, name: str) -> int | None:
    """How well a name fits a role: 0 is best, None is not at all."""
    found = [place for spelled in _spellings(name) if (place := _ORDER[role].get(spelled)) is not None]
    if found:
        return min(found)
    if role == "val_loss" and any(_EVAL_SET.fullmatch(spelled) for spelled in _spellings(name)):
        return len(_ORDER[role])  # one of several evaluation sets: the first of them
    return None


def roles_of(names: Iterable[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Role to name, for the names of a log; what is `given` goes first."""
    there = list(names)
    chosen = dict(given or {})
    taken = set(chosen.values())
    for role in ROLES:
        if role in chosen:
            continue
        fits = [(place, index, name) for index, name in enumerate(there)
                if name not in taken and (place := rank(role, name)) is not None]  # fmt: skip
        if fits:
            chosen[role] = min(fits)[2]
            taken.add(chosen[role])
    return chosen


def series_name(role: str) -> str:
    return SERIES.get(role, role)


def group_of(name: str) -> int | None:
    """The number of a parameter group whose learning rate this is (`lr/pg1`)."""
    found = next((found for spelled in _spellings(name) if (found := _GROUP.fullmatch(spelled))), None)
    return int(found[1]) if found else None
