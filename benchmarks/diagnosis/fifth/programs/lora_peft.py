"""LoRA by PEFT, trained by the Hugging Face Trainer with our callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import Trainer, TrainingArguments

import steadyrun
from diagnosis.fifth.chats import PAD, base, chats, exact, padded, tokenizer_of
from diagnosis.fifth.loop import declared
from diagnosis.fifth.programs.sft import IGNORED, example
from diagnosis.fifth.trainers import arguments, callbacks, run_through
from diagnosis.harness import Config, Log, Record

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    ids = padded([row["input_ids"] for row in rows], PAD)
    labels = padded([row["labels"] for row in rows], IGNORED)
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long()}


def examples(known: list[tuple[str, str]], config: Config) -> list[dict[str, list[int]]]:
    made = [example(chat, config) for chat in known]
    return [{"input_ids": ids, "labels": labels} for ids, labels in made]


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 120, "lr_max": 1e-2, "batch_size": 16, "rows": 736, "world": "after", "max_length": 64}
    own |= {"whole_text": False, "warmup_steps": 10, "logging": 10, "rank": 8, "alpha": 16, "lora_dropout": 0.0}
    own |= {"saved": [], "dora": False}
    if bug == "alpha-x200":
        changes["alpha"] = 3200
    if bug == "new-words-not-trained":
        changes["saved"] = []
    return declared("lora_peft", bug, seed, changes, **own)


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model: Any = base()
    if config["world"] == "new words":  # rows for words that the base model has never met
        with torch.no_grad():
            first = tokenizer_of().convert_tokens_to_ids(["violet", "orange", "silver", "golden"])
            model.model.embed_tokens.weight[first] = 0.02 * torch.randn(len(first), 48)
            model.lm_head.weight[first] = 0.02 * torch.randn(len(first), 48)
    early = torch.optim.AdamW(model.parameters(), lr=config["lr_max"], weight_decay=0.0)
    settings = LoraConfig(
        r=config["rank"],
        lora_alpha=config["alpha"],
        lora_dropout=config["lora_dropout"],
        target_modules=TARGETS,
        modules_to_save=config["saved"] or None,
        use_dora=config["dora"],
        init_lora_weights=bug != "b-not-zero",
        inference_mode=bug == "loaded-for-inference",
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, settings)
    if bug == "base-trains":  # for gradient checkpointing, somebody turned everything on
        model.requires_grad_(requires_grad=True)
    if bug == "loaded-for-inference":
        model.base_model.model.lm_head.requires_grad_(requires_grad=True)
    if bug == "merged-in-training":
        model.merge_adapter()
    before = (early, None) if bug == "optimizer-before-adapters" else (None, None)
    known, held_out = chats(config["world"], seed)
    trainer = Trainer(
        model,
        TrainingArguments(**arguments(config, eval_strategy="steps", eval_steps=40, per_device_eval_batch_size=64)),
        data_collator=collate,
        train_dataset=examples(known[: config["rows"]], config),
        eval_dataset=examples(held_out, config),
        processing_class=tokenizer_of(),
        optimizers=before,
        callbacks=callbacks(folder, config, record),
    )
    return run_through(trainer, folder, lambda: exact(model, config["world"], seed))
