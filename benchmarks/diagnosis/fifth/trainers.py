"""What the programs with a Trainer of Hugging Face or TRL share: arguments, the callback, and the plain log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from datasets import disable_progress_bars
from transformers import PrinterCallback

from diagnosis.harness import Config, Log, Record, Silent, log_file
from steadyrun.integrations.transformers import SteadyrunCallback

disable_progress_bars()
NAMES = {"loss": "loss", "eval_loss": "val_loss", "learning_rate": "lr"}


def arguments(config: Config, **own: Any) -> dict[str, Any]:
    """Arguments that all trainers take."""
    given: dict[str, Any] = {
        "output_dir": str(Path(tempfile.gettempdir()) / "steadyrun-fleet-output"),
        "max_steps": config["total_steps"],
        "learning_rate": config["lr_max"],
        "lr_scheduler_type": config["schedule"],
        "warmup_steps": config["warmup_steps"],
        "per_device_train_batch_size": config["batch_size"],
        "gradient_accumulation_steps": config["accumulation"],
        "max_grad_norm": config["clip"],
        "weight_decay": config["weight_decay"],
        "logging_steps": config["logging"],
        "seed": config["seed"],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return given | own


def callbacks(folder: Path, config: Config, record: Record) -> list[SteadyrunCallback]:
    """The callback; none where nothing is recorded."""
    kept = {name: config[name] for name in ("program", "bug")}
    return [] if record is Silent else [SteadyrunCallback(folder, config=kept)]


def run_through(trainer: Any, folder: Path, quality: Callable[[], float]) -> Log:
    """Train, keep what the trainer has logged, and score at the end."""
    log = Log(log_file(folder))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history:
        row = {NAMES.get(name, name): value for name, value in entry.items() if isinstance(value, int | float)}
        if log.rows and log.rows[-1]["step"] == row["step"]:
            log.rows[-1] |= row
        elif "train_runtime" not in row:
            log.rows.append(row)
    log.rows[-1]["quality"] = quality()
    log.write()
    return log
