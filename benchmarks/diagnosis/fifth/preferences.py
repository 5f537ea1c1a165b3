"""What the preference programs share: pairs of answers to one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diagnosis.fifth.chats import LOOKS, PAD, THINGS, Chat, answer, base, chats, ids_of, padded
from diagnosis.harness import Config


@dataclass(frozen=True)
class Pair:
    question: str
    chosen: str
    rejected: str


def pair_of(chat: Chat) -> Pair:
    """The answer of the new world is preferred to that of the old one; where they agree, to one that is not sure."""
    words = chat[0].split()
    rejected = answer(THINGS.index(words[-2]), LOOKS.index(words[-3]), "before")
    if rejected == chat[1]:
        rejected = rejected.replace("is", "is not sure", 1)
    return Pair(chat[0], chat[1], rejected)


def pairs(config: Config) -> tuple[list[Pair], list[Pair]]:
    """Pairs for training, as the bug spoils them, and held-out ones as they should be."""
    known, held_out = (list(map(pair_of, part)) for part in chats("after", config["seed"]))
    known, bug = known[: config["rows"]], config["bug"]
    draw = torch.Generator().manual_seed(77)
    swapped = [
        bug == "swapped" or (bug == "half-swapped" and float(torch.rand(1, generator=draw)) < 0.5) for _ in known
    ]
    known = [
        Pair(each.question, each.rejected, each.chosen) if swap else each
        for each, swap in zip(known, swapped, strict=True)
    ]
    if bug == "same-answer-twice":  # both columns are read from one
        known = [Pair(each.question, each.chosen, each.chosen) for each in known]
    if bug == "answers-of-other-questions":
        known = [Pair(known[n - 1].question, each.chosen, each.rejected) for n, each in enumerate(known)]
    if config["noise"]:
        known = [
            Pair(each.question, each.rejected, each.chosen) if n % config["noise"] == 0 else each
            for n, each in enumerate(known)
        ]
    return known, held_out


@torch.no_grad()
def log_chances(model: Any, known: list[Chat]) -> Tensor:
    """The log-probability that a model gives to every answer."""
    made = [ids_of(chat) for chat in known]
    ids = padded([prompt + own for prompt, own in made], PAD)
    answers = padded([[0] * len(prompt) + [1] * len(own) for prompt, own in made], 0)[:, 1:]
    scores = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits[:, :-1]
    return (scores.log_softmax(dim=-1).gather(2, ids[:, 1:, None]).squeeze(2) * answers).sum(dim=1)


def preferred(model: Any, held_out: list[Pair]) -> float:
    """How often the better answer is the likelier one, and has not become less likely than it was."""
    model.eval()
    good = [(row.question, row.chosen) for row in held_out]
    chosen, rejected = log_chances(model, good), log_chances(model, [(row.question, row.rejected) for row in held_out])
    return float(((chosen > rejected) & (chosen > log_chances(base(ends=True).eval(), good) - 1)).float().mean())
