"""The character GPT in other honest ways: packed rows, averaged weights, fine-tuned, adapters, its head alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import steadyrun
from diagnosis.harness import Batches, Config, Silent, split_decay
from diagnosis.healthy.loop import declared, trainer
from diagnosis.programs import char_gpt
from diagnosis.programs.text import Tokenizer, sentences

LENGTH, BATCH, RANK = char_gpt.LENGTH, 16, 4
PRETRAINED = ("fine-tuning", "lora", "probe", "frozen-body")


class Adapted(nn.Module):
    """A frozen linear layer and a narrow one beside it, which begins as zero."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.down.T @ self.up.T


class Checkpointed(nn.Module):
    """A block whose activations are computed again in the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        return checkpoint(self.block, x, real, use_reentrant=False)


@cache
def pretrained(seed: int) -> dict[str, Tensor]:
    """The weights of a GPT that has read other sentences for 200 steps."""
    kept: dict[str, Any] = {}

    class Keep(Silent):
        def watch(self, model: nn.Module, *_: Any, **__: Any) -> None:
            kept["model"] = model

    import tempfile

    with tempfile.TemporaryDirectory() as place:
        char_gpt.train(Path(place) / "run", None, seed + 50, steps=200, record=Keep, dropout=0.0)
    return kept["model"].state_dict()


def batches(config: Config) -> Iterator[dict[str, Tensor]]:
    if config["kind"] == "packed":
        yield from packed(config)
    shape = char_gpt.configure(None, config["seed"], config["total_steps"])
    for step, batch in enumerate(char_gpt.batches(shape)):
        if config["kind"] == "recovering-spike" and step == 200:  # one page of something else, which is soon forgotten
            batch = {name: part.flip(1) if name == "input_ids" else part for name, part in batch.items()}
        yield batch


def packed(config: Config) -> Iterator[dict[str, Tensor]]:
    """One long stream of sentences, cut into rows without any padding."""
    tokenizer = Tokenizer()
    stream = [i for text in sentences(2000, config["seed"]) for i in [*tokenizer.encode(text), tokenizer.eos_token_id]]
    rows = torch.tensor(stream[: len(stream) // (LENGTH + 1) * (LENGTH + 1)]).view(-1, LENGTH + 1)
    draw = torch.Generator().manual_seed(config["seed"])
    while True:
        for chosen in torch.randperm(len(rows), generator=draw).split(BATCH)[:-1]:
            yield {"input_ids": rows[chosen, :-1], "labels": rows[chosen, 1:]}


def validation(config: Config) -> list[dict[str, Tensor]]:
    return char_gpt.validation(char_gpt.configure(None, config["seed"], config["total_steps"]))


def configure(seed: int, kind: str, steps: int = 300) -> Config:
    more: Config = {
        "batch_size": BATCH,
        "clip": 1.0,
        "vocab_size": Tokenizer.vocab_size,
        "causal": True,
        "dropout": 0.0,
    }
    more |= {"pad_id": Tokenizer.pad_token_id, "no_decay": ["bias", "norm"], "tie_word_embeddings": False}
    if kind in PRETRAINED:
        more["init"] = "pretrained"
    return declared("language", kind, seed, steps, **more)


def task(config: Config) -> steadyrun.Task:
    kind = config["kind"]
    start = pretrained(config["seed"]) if kind in PRETRAINED else None
    torch.manual_seed(config["seed"])
    model = char_gpt.GPT(config)
    if start is not None:
        model.load_state_dict(start)
    if kind == "checkpointing":
        model.blocks = nn.ModuleList(Checkpointed(block) for block in model.blocks)
    if kind == "lora":
        model.requires_grad_(False)
        for block in model.blocks:
            block.attention.qkv = Adapted(block.attention.qkv)
    if kind in ("probe", "frozen-body"):
        model.requires_grad_(False)
        model.head.requires_grad_(True)
    groups: Any = split_decay(model, config["weight_decay"])
    if kind == "frozen-body":  # all parameters are handed over; those that are frozen have no gradient
        groups = split_decay(model, config["weight_decay"], frozen=True)
    if kind == "probe":
        groups = model.head.parameters()
    optimizer = torch.optim.AdamW(groups, lr=config["lr_max"], weight_decay=config["weight_decay"])
    built = steadyrun.Task(
        model, optimizer, char_gpt.loss_fn, loader=Batches(partial(batches, config)), val_loader=validation(config)
    )
    if kind == "ema":
        averages[id(model)] = copy.deepcopy(model)
    return built


averages: dict[int, nn.Module] = {}


@torch.no_grad()
def average(built: steadyrun.Task, config: Config) -> None:
    """Follow the weights with a slow average, as diffusion models do."""
    if config["kind"] != "ema":
        return
    for slow, fast in zip(averages[id(built.model)].parameters(), built.model.parameters(), strict=True):
        slow.lerp_(fast, 0.01)


train = trainer(configure, task, validation, average)
