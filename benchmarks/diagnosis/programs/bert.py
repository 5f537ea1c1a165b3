"""A tiny BERT from `transformers`, trained to say which group of words prevails in a sequence; padded, with masks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

import steadyrun
from diagnosis.harness import (
    Batches,
    Config,
    Log,
    Record,
    attempts,
    intended,
    log_file,
    make_optimizer,
    make_scheduler,
    resume,
    split_decay,
    state_of,
)

PAD, CLS, SEP, FIRST = 0, 1, 2, 3
VOCABULARY, CLASSES, GROUP, LENGTH = 123, 4, 10, 32
TRAIN_ROWS, VAL_ROWS, BATCH = 2000, 256, 20
ODD_STEP = 120

Row = dict[str, Any]


class Tokenizer:
    """Every word is a token."""

    pad_token_id, cls_token_id, sep_token_id, vocab_size = PAD, CLS, SEP, VOCABULARY

    def get_vocab(self) -> dict[str, int]:
        return {"<pad>": PAD, "<cls>": CLS, "<sep>": SEP} | {f"w{i}": i for i in range(FIRST, VOCABULARY)}

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{i}" for i in ids)


def texts(count: int, seed: int) -> list[Row]:
    """The label is the group (of ten words each) that comes most often; all other words are neutral."""
    make, made = Random(seed), []
    for _ in range(count):
        label = make.randrange(CLASSES)
        others = make.choices([group for group in range(CLASSES) if group != label], k=2)
        groups = [label] * make.randint(2, 4) + others[: make.randint(0, 1)]
        words = [FIRST + GROUP * group + make.randrange(GROUP) for group in groups]
        words += [make.randrange(FIRST + GROUP * CLASSES, VOCABULARY) for _ in range(make.randint(2, 22))]
        make.shuffle(words)
        made.append({"ids": [CLS, *words, SEP], "label": label})
    return made


def collate(rows: list[Row], config: Config) -> dict[str, Tensor]:
    length = max(len(row["ids"]) for row in rows)
    ids = torch.tensor([row["ids"] + [PAD] * (length - len(row["ids"])) for row in rows])
    batch = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
    if config["bug"] == "B16":  # the model was never told what is padding
        del batch["attention_mask"]
    return batch | {"labels": torch.tensor([row["label"] for row in rows])}


def loader_of(config: Config, epoch: int = 0) -> DataLoader[Any]:
    bug, rows = config["bug"], texts(TRAIN_ROWS, config["seed"])
    if bug == "A34":  # the labels come from a file in another order
        labels = [row["label"] for row in rows]
        Random(config["seed"]).shuffle(labels)
        rows = [row | {"label": label} for row, label in zip(rows, labels, strict=True)]
    if bug == "A10":
        rows = sorted(rows, key=lambda row: row["label"])
    order = torch.Generator().manual_seed(config["seed"] + 1000 * epoch)
    size = config["batch_size"] // config["accumulation"]
    return DataLoader(
        rows,  # type: ignore[arg-type]
        size,
        shuffle=bug != "A10",
        drop_last=True,
        generator=order,
        collate_fn=lambda rows: collate(rows, config),
    )


def batches(config: Config, first: int = 0) -> Iterator[dict[str, Tensor]]:
    per_epoch = TRAIN_ROWS // config["batch_size"]
    epoch, skip = divmod(first, per_epoch)
    skip, step = skip * config["accumulation"], first
    while True:
        for number, batch in enumerate(loader_of(config, epoch)):
            if number >= skip:
                if config["bug"] == "B15" and step == ODD_STEP:  # a word that was added to the tokenizer alone
                    batch["input_ids"][0, 1] = VOCABULARY
                yield batch
                step += 1
        epoch, skip = epoch + 1, 0


def validation(config: Config) -> list[dict[str, Tensor]]:
    rows = texts(VAL_ROWS, config["seed"] + (0 if config["bug"] == "A33" else 700))
    return [collate(rows[begin : begin + 128], config) for begin in range(0, VAL_ROWS, 128)]


def make_model(config: Config) -> nn.Module:
    shape = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=LENGTH,
        num_labels=CLASSES,
        pad_token_id=PAD,
        hidden_dropout_prob=config["dropout"],
        attention_probs_dropout_prob=config["dropout"],
    )
    return BertForSequenceClassification(shape)


def make_loss(config: Config) -> Any:
    bug = config["bug"]

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        inputs = {name: part for name, part in batch.items() if name != "labels"}
        if bug == "A30":  # features are taken from the encoder as for a frozen one
            features = model.bert(**inputs).pooler_output.detach()
            logits = model.classifier(model.dropout(features))
        else:
            logits = model(**inputs).logits
        if bug == "A4":
            logits = logits.softmax(dim=-1)
        return cross_entropy(logits.float(), batch["labels"], label_smoothing=config["smoothing"])

    return loss_fn


def configure(bug: str | None, seed: int, steps: int, **changes: Any) -> Config:
    config = intended(
        "bert",
        bug,
        seed,
        steps,
        lr_max=1e-3,
        schedule="linear",
        warmup_steps=30,
        batch_size=BATCH,
        weight_decay=0.01,
        no_decay=["bias", "LayerNorm"],
        num_classes=CLASSES,
        pad_id=PAD,
        dropout=0.1,
        smoothing=0.0,
    )
    return config | changes


def task(config: Config) -> steadyrun.Task:
    bug = config["bug"]
    torch.manual_seed(config["seed"])
    model = make_model(config)
    if bug == "A29":  # frozen for a first phase that only trained the classifier, and left so
        model.bert.requires_grad_(False)
    groups: Any = split_decay(model, config["weight_decay"])
    if bug == "A29":
        groups = model.bert.parameters()
    if bug == "B30":
        groups = model.parameters()
    optimizer = make_optimizer(config["optimizer"], groups, config["lr_max"], config["weight_decay"])
    if bug == "A27":  # another number of labels: a new classifier, after the optimizer was built
        model.classifier = nn.Linear(64, CLASSES)
    built = steadyrun.Task(model, optimizer, make_loss(config), scheduler=make_scheduler(optimizer, config))
    built.loader = Batches(partial(batches, config), config["accumulation"])
    built.val_loader, built.config = validation(config), config
    built.tokenizer = Tokenizer()
    built.train_step = lambda task, batch: step_of(task, batch, config)[0]
    return built


def step_of(task: steadyrun.Task, batch: Any, config: Config) -> tuple[Tensor, Tensor | None]:
    """One optimizer step: the undivided loss, and the gradient norm before clipping."""
    model, optimizer, bug = task.model, task.optimizer, config["bug"]
    parts = batch if config["accumulation"] > 1 else [batch]
    losses = []
    for each in parts:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["dtype"] == "bf16"):
            loss = task.loss_fn(model, each)
        losses.append(loss.detach())
        (loss if bug == "A19" else loss / len(parts)).backward()
    if bug == "A31":
        optimizer.zero_grad()
    norm = None
    if bug != "B2":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    optimizer.step()
    if bug == "B2":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    per_epoch = TRAIN_ROWS // config["batch_size"]
    if bug != "A17" or task.step % per_epoch == per_epoch - 1:
        task.scheduler.step()
        for _ in range(3 if bug == "A15" else 0):  # every one of four processes steps it
            task.scheduler.step()
    if bug not in ("A1", "A31"):
        optimizer.zero_grad()
    return torch.stack(losses).mean(), norm


@torch.no_grad()
def evaluate(model: nn.Module, loss_fn: Any, config: Config) -> Tensor:
    if config["bug"] != "A3":
        model.eval()
    loss = torch.stack([loss_fn(model, batch) for batch in validation(config)]).mean()
    if config["bug"] != "A2":
        model.train()
    return loss


def train(
    folder: Path,
    bug: str | None = None,
    seed: int = 1,
    *,
    steps: int = 300,
    record: Record = steadyrun.record,
    **changes: Any,
) -> Log:
    config = configure(bug, seed, steps, **changes)
    log, saved = Log(log_file(folder)), None
    for first, last in attempts(config):
        built = task(config)
        built.model.train()
        if saved is not None:
            resume(built, saved, config)
        start = 0 if bug == "B21" else first
        data = iter(Batches(partial(batches, config, start), config["accumulation"]))
        with record(folder, config=config) as run:
            run.watch(
                built.model,
                built.optimizer,
                scheduler=built.scheduler,
                loss_fn=built.loss_fn,
                tokenizer=Tokenizer(),
                loader=loader_of(config),
            )
            for step in range(first, last):
                built.step, batch = step, next(data)
                rate = built.optimizer.param_groups[0]["lr"]
                loss, norm = step_of(built, batch, config)
                log.step(step, loss, rate, norm)
                run.step(loss, batch=batch)
                if step % config["val_every"] == config["val_every"] - 1:
                    val_loss = evaluate(built.model, built.loss_fn, config)
                    log.val(val_loss)
                    run.val(val_loss, batches=validation(config))
        saved = state_of(built)
    log.write()
    return log
