"""DPO by TRL's DPOTrainer, with our callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

import steadyrun
from diagnosis.fifth.chats import base, small, tokenizer_of
from diagnosis.fifth.loop import declared
from diagnosis.fifth.preferences import Pair, pairs, preferred
from diagnosis.fifth.trainers import arguments, callbacks, run_through
from diagnosis.harness import Config, Log, Record


def dataset(rows: list[Pair]) -> Dataset:
    def said(role: str, texts: list[str]) -> list[list[dict[str, str]]]:
        return [[{"role": role, "content": text}] for text in texts]

    return Dataset.from_dict(
        {
            "prompt": said("user", [row.question for row in rows]),
            "chosen": said("assistant", [row.chosen for row in rows]),
            "rejected": said("assistant", [row.rejected for row in rows]),
        }
    )


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 100, "lr_max": 3e-4, "batch_size": 16, "rows": 736, "beta": 0.1, "smoothing": 0.0}
    own |= {"noise": 0, "warmup_steps": 10, "logging": 5, "max_length": 64, "loss_type": ["sigmoid"]}
    chosen: dict[str, Config] = {"beta-of-50": {"beta": 50.0}, "answers-cut": {"max_length": 14}}
    return declared("dpo_trl", bug, seed, changes, **own) | chosen.get(bug or "", {})


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model = base(ends=True)
    known, held_out = pairs(config)
    settings = DPOConfig(
        **arguments(config, eval_strategy="steps", eval_steps=50, per_device_eval_batch_size=32),
        beta=config["beta"],
        max_length=config["max_length"],
        label_smoothing=config["smoothing"],
        loss_type=config["loss_type"],
    )
    trainer = DPOTrainer(
        model,
        ref_model=small() if bug == "reference-not-loaded" else base(ends=True),
        args=settings,
        processing_class=tokenizer_of(),
        train_dataset=dataset(known),
        eval_dataset=dataset(held_out[:64]),
        callbacks=callbacks(folder, config, record),
    )
    return run_through(trainer, folder, lambda: preferred(model, held_out))
