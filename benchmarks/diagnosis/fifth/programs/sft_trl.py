"""Fine-tuning by TRL's SFTTrainer, with our callback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling
from trl import SFTConfig, SFTTrainer

import steadyrun
from diagnosis.fifth import chats
from diagnosis.fifth.loop import declared
from diagnosis.fifth.trainers import arguments, callbacks, run_through
from diagnosis.harness import Config, Log, Record

TEMPLATES = {"template-of-another-model": chats.FOREIGN, "end-left-out": chats.WITHOUT_END}


def dataset(known: list[chats.Chat], config: Config, template: str) -> Dataset:
    """Conversations as prompt and completion; as ready text where a program has rendered them itself."""
    if config["bug"] == "two-start-tokens" or config["kind"] == "text":
        tokenizer = chats.tokenizer_of(template)
        texts = [tokenizer.apply_chat_template(chats.messages(chat), tokenize=False) for chat in known]
        if config["bug"] != "two-start-tokens":  # the tokenizer adds the start
            texts = [text.removeprefix("<s>") for text in texts]
        return Dataset.from_dict({"text": texts})
    rows = [chats.messages(chat) for chat in known]
    return Dataset.from_dict({"prompt": [row[:1] for row in rows], "completion": [row[1:] for row in rows]})


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 120, "lr_max": 2e-3, "batch_size": 16, "rows": 736, "world": "after", "max_length": 64}
    own |= {"packing": False, "kind": "chat", "warmup_steps": 10, "logging": 10}
    if bug == "answers-cut":
        own["max_length"] = 17
    return declared("sft_trl", bug, seed, changes, **own)


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model, template = chats.base(), TEMPLATES.get(bug or "", chats.TEMPLATE)
    known, held_out = chats.chats(config["world"], seed)
    tokenizer = chats.tokenizer_of(template)
    only = {"completion_only_loss": False} if bug == "prompts-learned" else {}
    collator = None
    if bug == "ends-masked":  # the pad token is the end token, and the collator masks pad tokens
        tokenizer.pad_token = tokenizer.eos_token
        masking = DataCollatorForLanguageModeling(tokenizer, mlm=False)

        def collator(rows: list[dict[str, Any]]) -> Any:
            return masking([{"input_ids": row["input_ids"]} for row in rows])

    settings = SFTConfig(
        **arguments(config, eval_strategy="steps", eval_steps=40, per_device_eval_batch_size=64),
        max_length=config["max_length"],
        packing=config["packing"],
        dataset_num_proc=None,
        **only,
    )
    trainer = SFTTrainer(
        model,
        args=settings,
        processing_class=tokenizer,
        data_collator=collator,
        train_dataset=dataset(known[: config["rows"]], config, template),
        eval_dataset=dataset(held_out, config, template),
        callbacks=callbacks(folder, config, record),
    )
    try:
        return run_through(trainer, folder, lambda: chats.exact(model, config["world"], seed))
    finally:
        chats.tokenizer_of.cache_clear()
