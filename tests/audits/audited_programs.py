"""One small classifier and one small language model, with one bug at a time in an ordinary loop."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from steadyrun.report.report import Report

Batch = tuple[Tensor, Tensor]


class Classifier(nn.Module):
    def __init__(self, bug: str) -> None:
        super().__init__()
        self.bug = bug
        self.first, self.drop, self.head = nn.Linear(16, 64), nn.Dropout(0.1), nn.Linear(64, 8)
        self.extra = [nn.Linear(64, 64)] if bug == "list" else None

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.drop(self.first(x).relu())
        if self.extra is not None:
            hidden = self.extra[0](hidden)
        if self.bug == "detached":
            hidden = hidden.detach()
        scores = self.head(hidden)
        return scores.softmax(-1) if self.bug == "softmax" else scores


def examples(count: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 16, generator=generator)
    weights = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    return x, (x @ weights).argmax(-1)


def classify(folder: Path, bug: str = "", steps: int = 120, **watching: Any) -> Report:
    """Train the classifier; the report of its run."""
    torch.manual_seed(1)
    x, y = examples(640, 1)
    if bug == "sorted":
        order = y.argsort()
        x, y = x[order], y[order]
    model = Classifier(bug)
    if bug == "frozen":
        model.requires_grad_(False)
        model.head.requires_grad_(True)
    trained = model.first.parameters() if bug == "frozen" else model.parameters()
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    if bug == "replaced":
        model.head = nn.Linear(64, 8)
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=bug != "sorted", generator=generator)
    validation = [examples(64, 2)]
    config = {"num_classes": 8, "init": "random", "clip": 1.0}
    with steadyrun.record(folder, config=config) as run:
        run.watch(model, optimizer, loss_fn=lambda m, b: functional.cross_entropy(m(b[0]), b[1]), **watching)
        for step, batch in enumerate(itertools.islice(_epochs(loader, bug), steps)):
            _step(model, optimizer, batch, bug, run)
            if step % 30 == 29:
                _validate(model, validation, bug, run)
    return steadyrun.check(folder)


def _epochs(loader: Any, bug: str) -> Any:
    while True:
        if bug == "same-order":
            loader.generator.manual_seed(3)
        yield from loader


def _step(model: nn.Module, optimizer: Any, batch: Batch, bug: str, run: Any) -> None:
    x, y = batch
    if bug != "no-zero-grad":
        optimizer.zero_grad(set_to_none=bug != "zeroed-in-place")
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    if bug == "erased":
        optimizer.zero_grad()
    if bug != "late-clip":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if bug == "late-clip":
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    run.step(loss, batch=batch)


def _validate(model: nn.Module, batches: list[Batch], bug: str, run: Any) -> None:
    if bug != "validated-in-training":
        model.eval()
    noisy = [(x + 0.1 * torch.randn_like(x), y) for x, y in batches] if bug == "augmented" else batches
    with torch.no_grad():
        loss = torch.stack([functional.cross_entropy(model(x), y) for x, y in noisy]).mean()
    if bug != "left-in-evaluation":
        model.train()
    run.val(loss, batches=noisy)


class Language(nn.Module):
    """A causal transformer over 24 tokens; 22 ends a text, 23 pads it."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(24, 32), nn.Embedding(16, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 24)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.block(self.tokens(ids) + self.places(torch.arange(length)), mask, is_causal=True))


def texts(generator: torch.Generator) -> Tensor:
    """Rows that count up from a random start, end, and are padded."""
    start, length = (
        torch.randint(0, 8, (16, 1), generator=generator),
        torch.randint(6, 14, (16, 1), generator=generator),
    )
    place = torch.arange(17)
    rows = (start + place) % 22
    rows = torch.where(place == length, 22, rows)
    return torch.where(place > length, 23, rows)


def write(folder: Path, bug: str = "", steps: int = 60, **declared: Any) -> Report:
    """Train the language model; the report of its run."""
    torch.manual_seed(1)
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(2)
    config = {"vocab_size": 24, "init": "random", "pad_id": 23, "eos_id": 22, "causal": True, **declared}
    with steadyrun.record(folder, config=config) as run:
        run.watch(model, optimizer)
        for step in range(steps):
            rows = texts(generator)
            if bug == "out-of-range" and step == 40:
                rows[0, 3] = 24
            x, y = rows[:, :-1], rows[:, 1:]
            if bug == "shifted-twice":
                x, y = rows[:, :-2], rows[:, 2:]
            elif bug == "not-shifted":
                y = x
            if bug not in ("padded", "masked-ends"):
                y = torch.where(y == 23, -100, y)
            if bug == "masked-ends":
                y = torch.where(y >= 22, -100, y)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            optimizer.step()
            run.step(loss, batch=(x, y))
    return steadyrun.check(folder)
