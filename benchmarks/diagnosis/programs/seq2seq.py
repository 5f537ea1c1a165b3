"""A GRU encoder and decoder with attention and teacher forcing: letters are spelt backwards in another alphabet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

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

PAD, SOS, EOS, FIRST, VOCABULARY = 0, 1, 2, 3, 23
LONGEST, WIDTH = 9, 48
TRAIN_ROWS, VAL_ROWS, BATCH = 3200, 256, 32
ODD_STEP = 200


class Tokenizer:
    """Twenty letters and three marks."""

    pad_token_id, bos_token_id, eos_token_id, vocab_size = PAD, SOS, EOS, VOCABULARY

    def get_vocab(self) -> dict[str, int]:
        return {"<pad>": PAD, "<sos>": SOS, "<eos>": EOS} | {chr(94 + i): i for i in range(FIRST, VOCABULARY)}

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(94 + i) if i >= FIRST else "|" for i in ids)


def pairs(count: int, seed: int, config: Config) -> tuple[Tensor, Tensor]:
    """Rows of source and target, padded; a target begins with <sos> and ends with <eos>."""
    make, sources, targets = Random(seed), [], []
    alphabet = list(range(FIRST, VOCABULARY))
    other = Random(5).sample(alphabet, len(alphabet))
    pad = config["pad_id"]
    for _ in range(count):
        word = make.choices(alphabet, k=make.randint(4, LONGEST))
        spelt = [other[letter - FIRST] for letter in reversed(word)]
        sources.append(word + [pad] * (LONGEST - len(word)))
        targets.append([SOS, *spelt, EOS] + [pad] * (LONGEST - len(spelt)))
    if config["bug"] == "A34" and seed == config["seed"]:  # the two files were shuffled each for itself
        make.shuffle(targets)
    return torch.tensor(sources), torch.tensor(targets)


def batch_of(source: Tensor, target: Tensor, config: Config) -> dict[str, Tensor]:
    """The decoder is given the target up to here and has to say what comes next."""
    bug = config["bug"]
    given, labels = target[:, :-1], target[:, 1:]
    if bug == "A22":
        given = labels
    if bug == "A21":
        given, labels = given[:, :-1], labels[:, 1:]
    if bug != "A26":
        labels = labels.masked_fill(labels == config["pad_id"], -100)
    return {"source": source, "decoder_input_ids": given, "labels": labels}


def spoiled(batch: dict[str, Tensor], step: int, bug: str | None) -> dict[str, Tensor]:
    if step == ODD_STEP and bug == "B14":  # a shard whose targets are all empty
        batch["labels"] = torch.full_like(batch["labels"], -100)
    if step == ODD_STEP and bug == "B31":  # a shard of one letter
        batch = {name: torch.full_like(part, FIRST) for name, part in batch.items()}
    return batch


def batches(config: Config, first: int = 0) -> Iterator[dict[str, Tensor]]:
    source, target = pairs(TRAIN_ROWS, config["seed"], config)
    size = config["batch_size"] // config["accumulation"]
    per_epoch, step = TRAIN_ROWS // size, first * config["accumulation"]
    while True:
        epoch, position = divmod(step, per_epoch)
        epoch = 0 if config["bug"] == "A12" else epoch
        order = torch.randperm(TRAIN_ROWS, generator=torch.Generator().manual_seed(config["seed"] + 1000 * epoch))
        for begin in range(position * size, per_epoch * size, size):
            rows = order[begin : begin + size]
            yield spoiled(batch_of(source[rows], target[rows], config), step, config["bug"])
            step += 1


def validation(config: Config) -> list[dict[str, Tensor]]:
    source, target = pairs(VAL_ROWS, config["seed"] + 600, config)
    if config["bug"] == "A33":
        source, target = (part[:VAL_ROWS] for part in pairs(TRAIN_ROWS, config["seed"], config))
    return [batch_of(source, target, config)]


class Seq2Seq(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.source, self.target = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True)
        heads = [nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)]
        self.heads: Any = heads if config["bug"] == "A28" else nn.ModuleList(heads)
        self.drop = nn.Dropout(config["dropout"])

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        real = source != self.config["pad_id"]
        x = self.drop(self.source(source))
        if self.config["bug"] == "B16":  # the encoder runs on over the padding, and the decoder looks at it
            read, state = self.encoder(x)
            real = torch.ones_like(real)
        else:
            packed = pack_padded_sequence(x, real.sum(1), batch_first=True, enforce_sorted=False)
            read, state = self.encoder(packed)
            read, _ = pad_packed_sequence(read, batch_first=True, total_length=source.shape[1])
        if self.config["bug"] == "A30":
            read, state = read.detach(), state.detach()
        written, _ = self.decoder(self.drop(self.target(given)), state)
        scores = written @ read.transpose(1, 2) / WIDTH**0.5
        weights = scores.masked_fill(~real[:, None, :], float("-inf")).softmax(dim=-1)
        mixed = torch.tanh(self.heads[0](torch.cat([written, weights @ read], dim=-1)))
        return self.heads[1](mixed)


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits = model(batch["source"], batch["decoder_input_ids"])
    return cross_entropy(logits.flatten(0, 1).float(), batch["labels"].flatten(), ignore_index=-100)


def configure(bug: str | None, seed: int, steps: int, **changes: Any) -> Config:
    config = intended(
        "seq2seq",
        bug,
        seed,
        steps,
        lr_max=5e-3,
        lr_min=5e-5,
        warmup_steps=20,
        batch_size=BATCH,
        weight_decay=0.01,
        vocab_size=VOCABULARY,
        pad_id=EOS if bug == "A25" else PAD,
        eos_id=EOS,
        dropout=0.1,
    )
    return config | changes


def task(config: Config) -> steadyrun.Task:
    bug = config["bug"]
    torch.manual_seed(config["seed"])
    model = Seq2Seq(config)
    optimizer = make_optimizer(
        config["optimizer"], split_decay(model, config["weight_decay"]), config["lr_max"], config["weight_decay"]
    )
    if bug == "A27":
        model.heads[1] = nn.Linear(WIDTH, VOCABULARY)
    built = steadyrun.Task(model, optimizer, loss_fn, scheduler=make_scheduler(optimizer, config))
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
def evaluate(model: nn.Module, config: Config) -> Tensor:
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
    steps: int = 500,
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
                built.step, batch = step, next(data)
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
