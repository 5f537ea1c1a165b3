"""A character-level LSTM on simple English sentences; Adam, and StepLR stepped once an epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.tutor.corpus import generate

EPOCHS = 6
BATCH = 32
LENGTH = 48
LR = 4e-3


class CharLstm(nn.Module):
    def __init__(self, characters: int, width: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, 32)
        self.lstm = nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, characters)

    def forward(self, text: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embed(text))
        return self.head(hidden)


def windows(text: str, alphabet: str) -> Tensor:
    """The text in rows of LENGTH + 1 characters: inputs and the characters after them."""
    codes = torch.tensor([alphabet.index(character) for character in text])
    return codes[: len(codes) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)


def loss_of(model: nn.Module, rows: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(out: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    books = [" ".join(sentence.text for sentence in generate(number)[0]) for number in range(8)]
    held_out = " ".join(sentence.text for sentence in generate(100)[1])
    alphabet = "".join(sorted(set("".join(books) + held_out)))
    rows, val_rows = windows(" ".join(books), alphabet), windows(held_out, alphabet)
    model = CharLstm(len(alphabet))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    config = {
        "seed": seed,
        "lr_max": LR,
        "schedule": "step",
        "total_steps": EPOCHS * (len(rows) // BATCH),
        "batch_size": BATCH,
        "clip": 5.0,
        "vocab_size": len(alphabet),
        "reduction": "mean",
        "init": "random",
    }
    with steadyrun.record(out, config=config) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(rows))[: len(rows) // BATCH * BATCH].split(BATCH):
                loss = loss_of(model, rows[chosen])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                run.step(loss, batch=rows[chosen])
            scheduler.step()
            with torch.no_grad():
                run.val(loss_of(model, val_rows), batches=[val_rows])


if __name__ == "__main__":
    train(Path(sys.argv[1]))
