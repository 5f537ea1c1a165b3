"""A reward model by TRL's RewardTrainer, with our callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import LlamaForSequenceClassification
from trl import RewardConfig, RewardTrainer

import steadyrun
from diagnosis.fifth.chats import PAD, base, padded, tokenizer_of, whole
from diagnosis.fifth.loop import declared
from diagnosis.fifth.preferences import Pair, pairs
from diagnosis.fifth.programs.dpo_trl import dataset
from diagnosis.fifth.trainers import arguments, callbacks, run_through
from diagnosis.harness import Config, Log, Record


def scorer(config: Config) -> LlamaForSequenceClassification:
    """The base model with a head that gives one number."""
    before = base(ends=True)
    settings = before.config
    settings.num_labels = 1
    model = LlamaForSequenceClassification(settings)
    model.model.load_state_dict(before.model.state_dict())
    nn.init.normal_(model.score.weight, std=0.02)
    if config["bug"] == "head-frozen-at-zero":
        nn.init.zeros_(model.score.weight).requires_grad_(requires_grad=False)
    if config["bug"] == "body-frozen":
        model.model.requires_grad_(requires_grad=False)
    return model


@torch.no_grad()
def right(model: nn.Module, held_out: list[Pair]) -> float:
    """How often the better answer has the higher score."""
    model.eval()
    sides = []
    for texts in ([(row.question, row.chosen) for row in held_out], [(row.question, row.rejected) for row in held_out]):
        ids = padded([whole(chat) for chat in texts], PAD)
        sides.append(model(input_ids=ids, attention_mask=(ids != PAD).long()).logits.squeeze(1))
    return float((sides[0] > sides[1]).float().mean())


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 100, "lr_max": 5e-4, "batch_size": 16, "rows": 736, "smoothing": 0.0, "centre": None}
    own |= {"noise": 0, "warmup_steps": 10, "logging": 5, "max_length": 64}
    return declared("reward", bug, seed, changes, **own)


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model = scorer(config)
    known, held_out = pairs(config)
    settings = RewardConfig(
        **arguments(config, eval_strategy="steps", eval_steps=50, per_device_eval_batch_size=32),
        max_length=config["max_length"],
        center_rewards_coefficient=config["centre"],
    )
    trainer = RewardTrainer(
        model,
        args=settings,
        processing_class=tokenizer_of(),
        train_dataset=dataset(known),
        eval_dataset=dataset(held_out[:64]),
        callbacks=callbacks(folder, config, record),
    )
    return run_through(trainer, folder, lambda: right(model, held_out))
