"""A character GPT on sentences that a small grammar makes up, one sentence per row, padded to the same length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR

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
from diagnosis.programs.text import Tokenizer, sentences

LENGTH, WIDTH, LAYERS, HEADS = 40, 64, 2, 4
TRAIN_ROWS, VAL_ROWS, BATCH = 1600, 128, 16
ODD_STEP = 150  # the step of the one strange batch, in bugs that have one


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH / HEADS)
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        if self.config["bug"] == "A23":
            seen = torch.ones_like(seen)
        if self.config["bug"] == "B11":  # pads are masked as keys; an empty row has nothing left to look at
            seen = seen & real[:, None, None, :]
        scores = scores.masked_fill(~seen, float("-inf"))
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
        return self.out(mixed)


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_1, self.attention = nn.LayerNorm(WIDTH), Attention(config)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.drop = nn.Dropout(config["dropout"])

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm_1(x), real))
        return x + self.drop(self.mlp(self.norm_2(x)))


class GPT(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config["vocab_size"], WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        blocks = [Block(config) for _ in range(LAYERS)]
        self.blocks: Any = blocks if config["bug"] == "A28" else nn.ModuleList(blocks)
        self.norm = nn.Identity() if config["bug"] == "C16" else nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, config["vocab_size"], bias=False)
        self.apply(self._initialise)
        if config["bug"] == "B29":
            nn.init.normal_(self.tokens.weight, std=1.0)
        if config["tie_word_embeddings"]:
            self.head.weight = self.tokens.weight
            if config["bug"] == "B22":
                self.head.weight = nn.Parameter(self.tokens.weight.detach().clone())

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        real = ids != self.config["pad_id"]
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for number, block in enumerate(self.blocks):
            x = block(x, real)
            if self.config["bug"] == "A30" and number == 0:
                x = x.detach()
        return self.head(self.norm(x))


def rows_of(texts: list[str], config: Config) -> Tensor:
    tokenizer, bug = Tokenizer(), config["bug"]
    rows = []
    for text in texts:
        ids = [*tokenizer.encode(text), tokenizer.eos_token_id][: LENGTH + 1]
        pads = [config["pad_id"]] * (LENGTH + 1 - len(ids))
        rows.append(pads + ids if bug == "B16" else ids + pads)
    return torch.tensor(rows)


def batch_of(rows: Tensor, config: Config) -> dict[str, Tensor]:
    """Inputs and labels: the next token, and nothing where there is only padding."""
    bug = config["bug"]
    inputs, labels = rows[:, :-1], rows[:, 1:]
    if bug == "A22":
        labels = inputs
    if bug == "A21":  # the data are shifted here, and the loss shifts once more
        inputs, labels = inputs[:, :-1], labels[:, 1:]
    if bug != "A26":
        labels = labels.masked_fill(labels == config["pad_id"], -100)
    return {"input_ids": inputs, "labels": labels}


def spoiled(batch: dict[str, Tensor], step: int, bug: str | None) -> dict[str, Tensor]:
    """The one strange batch that some data have."""
    if step != ODD_STEP:
        return batch
    inputs, labels = batch["input_ids"].clone(), batch["labels"].clone()
    if bug == "B11":  # an empty line in the file
        inputs[0], labels[0] = Tokenizer.pad_token_id, -100
    if bug == "B14":  # prompts so long that every answer was cut off
        labels[:] = -100
    if bug == "B15":  # a token that was added to the tokenizer and not to the model
        inputs[0, 3] = Tokenizer.vocab_size
    if bug == "B31":  # a page of one character
        inputs[:], labels[:] = Tokenizer.letters.index("k"), Tokenizer.letters.index("k")
    return {"input_ids": inputs, "labels": labels}


def batches(config: Config, start: int = 0) -> Iterator[dict[str, Tensor]]:
    """Endless epochs; resuming goes on at `start`."""
    bug = config["bug"]
    rows = rows_of(sentences(TRAIN_ROWS, config["seed"]), config)
    size = config["batch_size"] // config["accumulation"]
    per_epoch, step = TRAIN_ROWS // size, start * config["accumulation"]
    while True:
        epoch, position = divmod(step, per_epoch)
        order_seed = config["seed"] if bug == "A12" else config["seed"] + 1000 * epoch
        order = torch.randperm(TRAIN_ROWS, generator=torch.Generator().manual_seed(order_seed))
        for begin in range(position * size, per_epoch * size, size):
            yield spoiled(batch_of(rows[order[begin : begin + size]], config), step, bug)
            step += 1


def validation(config: Config) -> list[dict[str, Tensor]]:
    seen = sentences(TRAIN_ROWS, config["seed"])
    texts = [each for each in sentences(2 * VAL_ROWS, config["seed"] + 500) if each not in set(seen)][:VAL_ROWS]
    if config["bug"] == "A33":  # drawn from all rows, after all rows were taken for training
        texts = seen[:VAL_ROWS]
    rows = rows_of(texts, config)
    return [batch_of(rows[begin : begin + 64], config) for begin in range(0, VAL_ROWS, 64)]


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["input_ids"])
    return cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=-100)


@torch.no_grad()
def evaluate(model: nn.Module, config: Config) -> Tensor:
    bug = config["bug"]
    if bug != "A3":
        model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["dtype"] == "bf16"):
        loss = torch.stack([loss_fn(model, batch) for batch in validation(config)]).mean()
    if bug != "A2":
        model.train()
    return loss


def configure(bug: str | None, seed: int, steps: int, **changes: Any) -> Config:
    """What is intended; `bug` is what goes wrong."""
    config = intended(
        "char_gpt",
        bug,
        seed,
        steps,
        lr_max=3e-3,
        lr_min=3e-4,
        warmup_steps=20,
        batch_size=BATCH,
        weight_decay=0.1,
        dropout=0.1,
        vocab_size=Tokenizer.vocab_size,
        pad_id=Tokenizer.pad_token_id,
        eos_id=Tokenizer.eos_token_id,
        tie_word_embeddings=bug in ("B22", "B29"),
        causal=True,
    )
    if bug == "A25":  # "the tokenizer has no pad token, so eos will do"
        config["pad_id"] = Tokenizer.eos_token_id
    if bug == "B6":
        config["lr_max"], config["lr_min"], config["dtype"] = 1e-5, 1e-6, "bf16"
    if bug in ("C15", "C16"):
        rate = 0.03 if bug == "C15" else 0.01
        config |= {"lr_max": rate, "lr_min": rate, "clip": None, "schedule": "constant", "weight_decay": 0.0}
    return config | changes


def task(config: Config) -> steadyrun.Task:
    """The objects of the program, as a new process builds them."""
    bug = config["bug"]
    torch.manual_seed(config["seed"])
    model = GPT(config)
    if bug == "B6":
        model.bfloat16()
    if bug == "A29":  # the body was frozen for a first phase that only trained the head, and stayed so
        model.blocks.requires_grad_(False)
    groups: Any = split_decay(model, config["weight_decay"])
    if bug == "A29":
        groups = model.blocks.parameters()
    if bug == "B30":
        groups = model.parameters()
    optimizer = make_optimizer(config["optimizer"], groups, config["lr_max"], config["weight_decay"])
    if bug == "A27":  # the vocabulary changed: a new head, after the optimizer was built
        model.head = nn.Linear(WIDTH, config["vocab_size"], bias=False)
    if bug == "A16":
        epochs = config["total_steps"] * BATCH // TRAIN_ROWS
        scheduler: Any = CosineAnnealingLR(optimizer, T_max=epochs, eta_min=config["lr_min"])
    else:
        scheduler = make_scheduler(optimizer, config)
    built = steadyrun.Task(model, optimizer, loss_fn, scheduler=scheduler)
    built.loader = Batches(partial(batches, config), config["accumulation"])
    built.val_loader, built.config = validation(config), config
    built.tokenizer = Tokenizer()
    built.train_step = lambda task, batch: step_of(task, batch, config)[0]
    return built


def step_of(task: steadyrun.Task, batch: Any, config: Config) -> tuple[Tensor, Tensor | None]:
    """One optimizer step: the undivided loss, and the gradient norm before clipping."""
    model, optimizer, bug, parts = task.model, task.optimizer, config["bug"], config["accumulation"]
    micro_batches = batch if parts > 1 else [batch]
    losses = []
    for each in micro_batches:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config["dtype"] == "bf16" and bug != "B6"):
            loss = task.loss_fn(model, each)
        (loss if bug == "A19" else loss / parts).backward()
        losses.append(loss.detach())
    if bug == "A31":
        optimizer.zero_grad()
    norm = None
    if config["clip"] is not None and bug != "B2":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    optimizer.step()
    if bug == "B2":
        norm = nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
    per_epoch = TRAIN_ROWS // config["batch_size"]
    if task.scheduler is not None and (bug != "A17" or task.step % per_epoch == per_epoch - 1):
        task.scheduler.step()
        if bug == "A15":  # every one of four processes steps it
            for _ in range(3):
                task.scheduler.step()
    if bug not in ("A1", "A31"):
        optimizer.zero_grad()
    return torch.stack(losses).mean(), norm


def train(
    folder: Path,
    bug: str | None = None,
    seed: int = 1,
    *,
    steps: int = 400,
    record: Record = steadyrun.record,
    **changes: Any,
) -> Log:
    config = configure(bug, seed, steps, **changes)
    log, saved = Log(log_file(folder)), None
    for first, last in attempts(config):
        built = task(config)
        if saved is not None:
            resume(built, saved, config)
        start = 0 if bug == "B21" else first
        data = iter(Batches(partial(batches, config, start), config["accumulation"]))
        with record(folder, config=config) as run:
            run.watch(built.model, built.optimizer, scheduler=built.scheduler, loss_fn=loss_fn, tokenizer=Tokenizer())
            for step in range(first, last):
                built.step = step
                batch = next(data)
                rate = built.optimizer.param_groups[0]["lr"]
                loss, norm = step_of(built, batch, config)
                log.step(step, loss, rate, norm)
                run.step(loss, batch=batch)
                if step % config["val_every"] == config["val_every"] - 1:
                    val_loss = evaluate(built.model, config)
                    log.val(val_loss)
                    run.val(val_loss, batches=validation(config))
        saved = state_of(built)
    log.write()
    return log
