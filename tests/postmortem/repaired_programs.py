"""Small programs with one planted bug each, and with the bug repaired. None of them is the tutor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun

Batch = dict[str, Tensor]
LossFn = Callable[[nn.Module, Batch], Tensor]

STEPS, BAD = 60, 40  # steps of a run, and the step at which a bug in the data strikes


@dataclass(frozen=True)
class Program:
    """`parts` gives the model, the rate and the loss function, `batch` the data of a step; both know the repair."""

    name: str
    parts: Callable[[bool], tuple[nn.Module, float, LossFn]]
    batch: Callable[[int, bool], Batch]

    def task(self, fixed: bool = False) -> steadyrun.Task:
        torch.manual_seed(0)
        model, rate, loss_fn = self.parts(fixed)
        return steadyrun.Task(model, torch.optim.SGD(model.parameters(), lr=rate), loss_fn)

    def broken(self) -> steadyrun.Task:
        return self.task()

    def record(self, path: Path, *, fixed: bool) -> Path:
        """Train and record; an exception of the program ends the run, as it would end the user's."""
        task = self.task(fixed)
        try:
            with steadyrun.record(path, config={"seed": 0}) as run:
                run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
                for batch in self._batches(fixed):
                    loss = task.loss_fn(task.model, batch)
                    loss.backward()
                    task.optimizer.step()
                    task.optimizer.zero_grad()
                    run.step(loss, batch=batch)
        except IndexError:
            assert not fixed
        return path

    def _batches(self, fixed: bool) -> Iterator[Batch]:
        for step in range(STEPS):
            yield self.batch(step, fixed)


def _drawn(step: int) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + step)


# -- a picture that is not a number --------------------------------------------------------------


def _pictures(step: int, fixed: bool) -> Batch:
    x = torch.randn(8, 1, 8, 8, generator=_drawn(step))
    y = (x.mean((1, 2, 3)) > 0).long()
    if step == BAD and not fixed:
        x[3, 0, 2:4] = float("nan")
    if step == BAD and fixed:
        x, y = x[[0, 1, 2, 4, 5, 6, 7]], y[[0, 1, 2, 4, 5, 6, 7]]
    return {"image": x, "label": y}


def _cnn(_fixed: bool) -> tuple[nn.Module, float, LossFn]:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))
    return model, 0.1, lambda net, batch: nn.functional.cross_entropy(net(batch["image"]), batch["label"])


# -- the logarithm of a probability that is zero ---------------------------------------------------


def _points(step: int, _fixed: bool) -> Batch:
    x = torch.randn(16, 4, generator=_drawn(step))
    if step == BAD:
        x[5] = 60.0  # far out and rightly so: a stable loss copes
    return {"x": x, "y": (x.sum(1) < 0).long()}


def _mlp(fixed: bool) -> tuple[nn.Module, float, LossFn]:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def loss_fn(net: nn.Module, batch: Batch) -> Tensor:
        scores = 10 * net(batch["x"])
        logs = scores.log_softmax(-1) if fixed else scores.softmax(-1).log()
        return nn.functional.nll_loss(logs, batch["y"])

    return model, 0.01, loss_fn


# -- a learning rate that lets the weights grow without bound ---------------------------------------


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.lstm(x)[0][:, -1])


def _sequences(step: int, _fixed: bool) -> Batch:
    x = torch.randn(8, 5, 3, generator=_drawn(step))
    return {"x": x, "y": x.sum((1, 2))[:, None]}


def _lstm(fixed: bool) -> tuple[nn.Module, float, LossFn]:
    return _Recurrent(), 0.01 if fixed else 2.0, lambda net, batch: nn.functional.mse_loss(net(batch["x"]), batch["y"])


# -- an exponential that overflows ------------------------------------------------------------------


def _counts(step: int, _fixed: bool) -> Batch:
    x = torch.randn(16, 4, generator=_drawn(step))
    if step == BAD:
        x[7], x[8] = 1e4, -1e4  # whichever way the weights point, one of the two is far up
    return {"x": x, "y": x[:, :1].clamp(-3, 3).exp().round()}


def _regression(fixed: bool) -> tuple[nn.Module, float, LossFn]:
    def loss_fn(net: nn.Module, batch: Batch) -> Tensor:
        rate = net(batch["x"])
        rate = rate.clamp(-5, 5) if fixed else rate
        return (rate.exp() - batch["y"] * rate).mean()

    return nn.Linear(4, 1), 0.01, loss_fn


# -- a label beyond the classes ----------------------------------------------------------------------


def _labelled(step: int, fixed: bool) -> Batch:
    x = torch.randn(16, 4, generator=_drawn(step))
    y = (x[:, :3].argmax(1)) % 3
    if step == BAD and not fixed:
        y[4] = 3
    return {"x": x, "y": y}


def _classifier(_fixed: bool) -> tuple[nn.Module, float, LossFn]:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    return model, 0.1, lambda net, batch: nn.functional.cross_entropy(net(batch["x"]), batch["y"])


# -- a root whose slope is infinite at zero ------------------------------------------------------------


def _pairs(step: int, _fixed: bool) -> Batch:
    a, b = torch.randn(2, 16, 4, generator=_drawn(step))
    if step == BAD:
        b[2] = a[2]
    return {"a": a, "b": b, "y": (a - b).abs().sum(1)}


def _metric(fixed: bool) -> tuple[nn.Module, float, LossFn]:
    def loss_fn(net: nn.Module, batch: Batch) -> Tensor:
        apart = (net(batch["a"]) - net(batch["b"])).square().sum(1)
        return ((apart + 1e-8 if fixed else apart).sqrt() - batch["y"]).square().mean()

    return nn.Linear(4, 4), 0.01, loss_fn


PROGRAMS = {
    program.name: program
    for program in (
        Program("nan-picture", _cnn, _pictures),
        Program("log-of-zero", _mlp, _points),
        Program("rate-too-high", _lstm, _sequences),
        Program("exp-overflow", _regression, _counts),
        Program("label-out-of-range", _classifier, _labelled),
        Program("sqrt-at-zero", _metric, _pairs),
    )
}
