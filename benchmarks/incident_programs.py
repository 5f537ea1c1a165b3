"""Training programs that are not the tutor, each as a task and as a loop that records itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from steadyrun import Task


class Net(nn.Module):
    """A small CNN with batch normalisation (buffers) and dropout (random states)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(2)
        )
        self.head = nn.Linear(32, 5)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(images).flatten(1))
        return out


class Tagger(nn.Module):
    """An LSTM over tokens; its output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 24)
        self.rnn = nn.LSTM(24, 24, batch_first=True)
        self.out = nn.Linear(24, 40)
        self.out.weight = self.embed.weight  # tied

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.rnn(self.embed(tokens))
        out: Tensor = self.out(hidden)
        return out


def image_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def token_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())


def images(seed: int) -> Iterator[list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield [torch.randn(16, 1, 8, 8, generator=generator), torch.randint(0, 5, (16,), generator=generator)]


def sentences(seed: int) -> Iterator[dict[str, Tensor]]:
    """Counting from any number: easy to learn."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        tokens = (torch.randint(0, 40, (6, 1), generator=generator) + torch.arange(13)) % 40
        yield {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}


def cnn_task() -> Task:
    torch.manual_seed(5)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=400)
    return Task(model, optimizer, image_loss, scheduler)


def rnn_task() -> Task:
    torch.manual_seed(6)
    model = Tagger()
    return Task(model, torch.optim.Adam(model.parameters(), lr=3e-3), token_loss)


@dataclass
class Loop:
    """A loop with its own order of things; `step` may be replaced by one with a bug."""

    task: Task
    batches: Iterator[Any]
    clip: float | None = None
    micro: int = 1
    autocast: torch.dtype | None = None
    spoil: Callable[[int, Any], Any] | None = None
    watch: dict[str, Any] = field(default_factory=dict)

    def run(self, path: Path, steps: int, **config: Any) -> Path:
        task = self.task
        with steadyrun.record(path, config=config) as run:
            run.watch(
                task.model,
                task.optimizer,
                scheduler=task.scheduler,
                scaler=task.scaler,
                loss_fn=task.loss_fn,
                **self.watch,
            )
            for step in range(steps):
                self.one(run, step)
        return path

    def one(self, run: steadyrun.Run, step: int) -> None:
        task = self.task
        task.optimizer.zero_grad()
        parts = [next(self.batches) for _ in range(self.micro)]
        if self.spoil is not None:
            parts = [self.spoil(step, part) for part in parts]
        losses = []
        for part in parts:
            with torch.autocast("cpu", dtype=self.autocast or torch.bfloat16, enabled=self.autocast is not None):
                loss = task.loss_fn(task.model, part)
            (loss / self.micro).backward()
            losses.append(loss.detach())
        if self.clip is not None:
            nn.utils.clip_grad_norm_(task.model.parameters(), self.clip)
        task.optimizer.step()
        run.step(torch.stack(losses).mean(), batch=parts if self.micro > 1 else parts[0])
        if task.scheduler is not None:  # after run.step: as some people write it
            task.scheduler.step()


def cnn(**changes: Any) -> Loop:
    return Loop(cnn_task(), images(1), **changes)


def rnn(**changes: Any) -> Loop:
    return Loop(rnn_task(), sentences(2), **changes)
