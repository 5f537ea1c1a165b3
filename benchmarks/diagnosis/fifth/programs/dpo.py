"""DPO in a plain loop: rewards, margins, accuracies and log-probabilities are logged."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

import steadyrun
from diagnosis.fifth.chats import END, PAD, base, ids_of, padded, small, tokenizer_of
from diagnosis.fifth.loop import Built, adamw, declared, epochs, run_through
from diagnosis.fifth.preferences import Pair, pairs, preferred
from diagnosis.harness import Config, Log, Record

Batch = dict[str, Tensor]


def collated(rows: list[Pair], config: Config) -> Batch:
    """Chosen answers in the first half, rejected ones in the second; a mask says what belongs to an answer."""
    made = [ids_of((row.question, row.chosen)) for row in rows] + [ids_of((row.question, row.rejected)) for row in rows]
    if config["bug"] == "answers-cut":
        made = [(prompt, own[:3]) for prompt, own in made]
    ids = padded([prompt + own for prompt, own in made], PAD)
    answers = padded([[0] * len(prompt) + [1] * len(own) for prompt, own in made], 0)
    if config["bug"] == "prompts-scored-alone":  # the mask is the wrong way round
        answers = padded([[1] * len(prompt) + [0] * len(own) for prompt, own in made], 0)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "answers": answers}


def log_chances(model: nn.Module, batch: Batch) -> Tensor:
    """The log-probability of every answer, chosen and rejected ones in two rows."""
    scores = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    each = scores.log_softmax(dim=-1).gather(2, batch["input_ids"][:, 1:, None]).squeeze(2)
    return (each * batch["answers"][:, 1:]).sum(dim=1).unflatten(0, (2, -1))


def make_loss(config: Config, reference: nn.Module, numbers: dict[str, float]) -> Callable[[nn.Module, Batch], Tensor]:
    beta, bug = config["beta"], config["bug"]

    def loss_fn(model: nn.Module, batch: Batch) -> Tensor:
        chosen, rejected = own = log_chances(model, batch)
        with torch.no_grad():
            before = log_chances(model if bug == "reference-is-the-policy" else reference, batch)
        reward = beta * (own - before)
        if bug == "loss-sign":
            reward = -reward
        margin = reward[0] - reward[1]
        loss = -(1 - config["smoothing"]) * logsigmoid(margin) - config["smoothing"] * logsigmoid(-margin)
        with torch.no_grad():
            told = {"rewards/chosen": reward[0].mean(), "rewards/rejected": reward[1].mean()}
            told |= {"rewards/margins": margin.mean(), "rewards/accuracies": (margin > 0).float().mean()}
            told |= {"logps/chosen": chosen.mean(), "logps/rejected": rejected.mean()}
        if torch.is_grad_enabled():
            numbers.update({name: float(value) for name, value in told.items()})
        return loss.mean()

    return loss_fn


def batches(known: list[Pair], config: Config) -> Iterator[Batch]:
    for rows in epochs(len(known), config["batch_size"], config["seed"]):
        yield collated([known[row] for row in rows], config)


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 100, "lr_max": 5e-4, "batch_size": 16, "rows": 736, "beta": 0.1, "smoothing": 0.0}
    own |= {"noise": 0, "init": "pretrained", "causal": True, "warmup_steps": 10}
    chosen: dict[str, Config] = {"beta-of-50": {"beta": 50.0}, "beta-of-1e-4": {"beta": 1e-4}}
    config = declared("dpo", bug, seed, changes, **own, pad_id=PAD, eos_id=END, vocab_size=len(tokenizer_of()))
    return config | chosen.get(bug or "", {})


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model = base(ends=True)
    reference = small() if bug == "reference-not-loaded" else copy.deepcopy(model)
    reference.requires_grad_(requires_grad=False).eval()
    known, held_out = pairs(config)
    numbers: dict[str, float] = {}
    loss_fn = make_loss(config, reference, numbers)
    optimizer = adamw(model, config)
    built = Built(model, optimizer, loss_fn, batches(known, config), lambda: preferred(model, held_out))
    built.held_out, built.numbers = [collated(held_out[:32], config | {"bug": None})], numbers
    return run_through(built, config, folder, record)
