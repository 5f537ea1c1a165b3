"""Masked language modelling with a tiny BERT: targets equal the inputs, except where something was hidden."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM

import steadyrun
from diagnosis.harness import Batches, Config, split_decay
from diagnosis.healthy.loop import declared, trainer
from diagnosis.programs.text import Tokenizer, sentences

LENGTH, BATCH = 40, 16
MASK = Tokenizer.vocab_size


def rows_of(count: int, seed: int) -> Tensor:
    tokenizer = Tokenizer()
    rows = [[*tokenizer.encode(text), tokenizer.eos_token_id][:LENGTH] for text in sentences(count, seed)]
    return torch.tensor([row + [tokenizer.pad_token_id] * (LENGTH - len(row)) for row in rows])


def batch_of(rows: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
    real = rows != Tokenizer.pad_token_id
    hidden = (torch.rand(rows.shape, generator=draw) < 0.15) & real
    return {
        "input_ids": rows.masked_fill(hidden, MASK),
        "attention_mask": real.long(),
        "labels": rows.masked_fill(~hidden, -100),
    }


def batches(config: Config) -> Iterator[dict[str, Tensor]]:
    rows, draw = rows_of(1600, config["seed"]), torch.Generator().manual_seed(config["seed"])
    while True:
        for chosen in torch.randperm(len(rows), generator=draw).split(BATCH):
            yield batch_of(rows[chosen], draw)


def validation(config: Config) -> list[dict[str, Tensor]]:
    return [batch_of(rows_of(128, config["seed"] + 400), torch.Generator().manual_seed(9))]


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)


def configure(seed: int, steps: int = 300) -> Config:
    more = {"vocab_size": MASK + 1, "pad_id": Tokenizer.pad_token_id, "batch_size": BATCH, "clip": 1.0}
    return declared("masked_lm", "masked-lm", seed, steps, tie_word_embeddings=True, **more)


def task(config: Config) -> steadyrun.Task:
    torch.manual_seed(config["seed"])
    shape = BertConfig(
        vocab_size=MASK + 1,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        pad_token_id=Tokenizer.pad_token_id,
    )
    model = BertForMaskedLM(shape).train()
    optimizer = torch.optim.AdamW(split_decay(model, config["weight_decay"]), lr=config["lr_max"])
    return steadyrun.Task(
        model, optimizer, loss_fn, loader=Batches(partial(batches, config)), val_loader=validation(config)
    )


train = trainer(configure, task, validation)
