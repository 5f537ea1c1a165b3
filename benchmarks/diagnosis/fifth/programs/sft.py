"""Fine-tuning of a small language model on conversations, by a plain loop with labels; also packed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from diagnosis.fifth.chats import END, FOREIGN, PAD, TEMPLATE, base, chats, exact, ids_of, padded, tokenizer_of
from diagnosis.fifth.loop import Built, adamw, declared, epochs, run_through
from diagnosis.harness import Config, Log, Record

ROW = 96  # tokens of a packed row
IGNORED = -100
Example = tuple[list[int], list[int]]
"""Ids and labels."""


def example(chat: tuple[str, str], config: Config) -> Example:
    """A conversation as ids and labels; the prompt has none."""
    bug = config["bug"]
    prompt, answer = ids_of(chat, FOREIGN if bug == "template-of-another-model" else TEMPLATE)
    if bug == "two-start-tokens":  # the template has one, and the tokenizer adds another
        prompt = [prompt[0], *prompt]
    if bug == "end-left-out":
        answer = [each for each in answer if each != END]
    ids, labels = prompt + answer, [IGNORED] * len(prompt) + answer
    if bug == "prompts-learned" or config["whole_text"]:
        labels = list(ids)
    if bug == "answers-masked":
        labels = [each if label == IGNORED else IGNORED for each, label in zip(ids, labels, strict=True)]
    if bug == "ends-masked":  # the pad token is the end token, and pad tokens are masked
        labels = [IGNORED if each == END else each for each in labels]
    if bug == "half-without-labels" and chat[0].split()[0] in ("what", "say", "tell"):  # the marker was not found
        labels = [IGNORED] * len(ids)
    if bug == "labels-shifted-by-hand":  # the model shifts them once more
        labels = [*labels[1:], IGNORED]
    if bug == "answers-cut":
        ids, labels = ids[: len(prompt) + 4], labels[: len(prompt) + 4]
    cut = config["max_length"]
    return ids[:cut], labels[:cut]


def collated(examples: list[Example], config: Config) -> dict[str, Tensor]:
    ids, labels = padded([each[0] for each in examples], PAD), padded([each[1] for each in examples], IGNORED)
    if config["bug"] == "pads-learned":
        labels = padded([each[1] for each in examples], PAD)
    return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long()}


def packed(examples: list[Example], config: Config) -> dict[str, Tensor]:
    """Several conversations in a row: they see only themselves, and their positions start anew."""
    rows: list[list[Example]] = [[]]
    for each in examples:
        if sum(len(ids) for ids, _ in rows[-1]) + len(each[0]) > ROW:
            rows.append([])
        rows[-1].append(each)
    shape = (len(rows), ROW)
    ids, labels = torch.full(shape, PAD), torch.full(shape, IGNORED)
    places, texts = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    for number, row in enumerate(rows):
        begin = 0
        for text, (own, learned) in enumerate(row):
            part = slice(begin, begin + len(own))
            ids[number, part], labels[number, part] = torch.tensor(own), torch.tensor(learned)
            labels[number, begin] = IGNORED  # the first token of a text follows from nothing
            places[number, part], texts[number, part] = torch.arange(len(own)), text
            begin += len(own)
    seen = torch.ones(ROW, ROW).tril().bool() & (texts[:, :, None] == texts[:, None, :])
    if config["bug"] == "packed-texts-see-each-other":
        return {"input_ids": ids, "labels": labels, "attention_mask": (ids != PAD).long()}
    seen |= torch.eye(ROW).bool()
    mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]
    return {"input_ids": ids, "labels": labels, "attention_mask": mask, "position_ids": places}


def batches(config: Config) -> Iterator[dict[str, Tensor]]:
    known = [example(chat, config) for chat in chats(config["world"], config["seed"])[0][: config["rows"]]]
    make = packed if config["packing"] else collated
    for rows in epochs(len(known), config["batch_size"], config["seed"]):
        yield make([known[row] for row in rows], config)


def held_out(config: Config) -> list[dict[str, Tensor]]:
    known = [example(chat, config) for chat in chats(config["world"], config["seed"])[1]]
    return [(packed if config["packing"] else collated)(known[first : first + 32], config) for first in (0, 32)]


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(**batch).loss


def configure(bug: str | None, seed: int, **changes: Any) -> Config:
    own: Config = {"steps": 150, "lr_max": 2e-3, "batch_size": 16, "rows": 736, "world": "after", "max_length": 64}
    own |= {"packing": False, "whole_text": False, "init": "pretrained", "causal": True, "warmup_steps": 10}
    return declared("sft", bug, seed, changes, **own, pad_id=PAD, eos_id=END, vocab_size=len(tokenizer_of()))


def train(
    folder: Path, bug: str | None = None, seed: int = 1, *, record: Record = steadyrun.record, **changes: Any
) -> Log:
    config = configure(bug, seed, **changes)
    torch.manual_seed(seed)
    model = base()
    built = Built(model, adamw(model, config), loss_fn, batches(config), lambda: exact(model, config["world"], seed))
    built.held_out, built.watched = held_out(config), {"tokenizer": tokenizer_of()}
    return run_through(built, config, folder, record)
