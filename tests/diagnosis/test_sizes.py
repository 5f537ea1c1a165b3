"""Programs in which one size is far off while the loss still falls, and their twins in which it only looks so."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from test_never_healthy import CLASSES, WIDTH, Task, train
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

Program = Callable[[Path], steadyrun.Report]


def model_of(dropout: float = 0.0, init: float = 1.0) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(init)
    return model


def adamw(
    folder: Path, *, dropout: float = 0.0, init: float = 1.0, last: float = 1.0, smoothing: float = 0.0, **settings: Any
) -> steadyrun.Report:
    model = model_of(dropout, init)
    with torch.no_grad():
        model[-1].weight.mul_(last)
    optimizer = torch.optim.AdamW(model.parameters(), **{"lr": 3e-3, **settings})
    loss_fn = partial(functional.cross_entropy, label_smoothing=smoothing)
    return train(folder, Task(), model, optimizer, loss_fn=loss_fn)


def sgd(folder: Path, *, clip: float = math.inf, **settings: float) -> steadyrun.Report:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), **{"lr": 0.02, "momentum": 0.9, **settings})
    if clip < math.inf:
        optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_norm_(model.parameters(), clip) and None)
    return train(folder, Task(), model, optimizer)


class Mixture(nn.Module):
    """Four experts that see six numbers, and a gate; `favour` is added to what the gate says of the first one."""

    def __init__(self, favour: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleList(nn.Linear(6, CLASSES) for _ in range(4))
        self.gate, self.favour = nn.Linear(6, 4), favour

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs[:, :6]
        shares = (self.gate(inputs) + torch.tensor([self.favour, 0.0, 0.0, 0.0])).softmax(dim=1)
        said = torch.stack([expert(inputs) for expert in self.experts], dim=1)
        return (shares.unsqueeze(2) * said).sum(dim=1)


def mixture(folder: Path, favour: float) -> steadyrun.Report:
    model = Mixture(favour)
    return train(folder, Task(), model, torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4))


def regression(folder: Path, bias: float) -> steadyrun.Report:
    """A sum of four numbers; `bias` is what all biases of the first hidden layer start at."""
    torch.manual_seed(0)
    draw, rule = torch.Generator().manual_seed(1), torch.tensor([1.0, -0.5, 0.7, 0.3])
    model = nn.Sequential(nn.Linear(4, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    nn.init.constant_(model[0].bias, bias)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with steadyrun.record(folder) as run:
        run.watch(model, optimizer, capture=False)
        for step in range(400):
            inputs = torch.randn(32, 4, generator=draw)
            loss = functional.mse_loss(model(inputs), (inputs @ rule).unsqueeze(1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=inputs)
            if step % 50 == 49:
                with torch.no_grad():
                    inputs = torch.randn(200, 4, generator=draw)
                    run.val(functional.mse_loss(model(inputs), (inputs @ rule).unsqueeze(1)))
    return steadyrun.check(folder)


BROKEN: dict[str, tuple[Program, set[str]]] = {
    "rate / 100": (partial(adamw, lr=3e-5), {"C7.1 rate-too-low"}),
    "SGD, rate / 100": (partial(sgd, lr=2e-4), {"C7.1 rate-too-low"}),
    "SGD, clipped to 0.001": (partial(sgd, clip=1e-3), {"C7.1 clip-too-tight"}),
    "rate x 100": (partial(adamw, lr=0.3), {"C7.2 rate-too-high"}),
    "decay 50": (partial(adamw, weight_decay=50.0), {"C7.3 too-strong"}),
    "SGD, decay 0.3": (partial(sgd, weight_decay=0.3), {"C7.3 too-strong"}),
    "epsilon 1": (partial(adamw, eps=1.0), {"C7.4 epsilon"}),
    "dropout 0.95": (partial(adamw, dropout=0.95), {"C7.5 too-high"}),
    "smoothing 0.9": (partial(adamw, smoothing=0.9), {"C7.6 hides-learning"}),
    "weights x 10": (partial(adamw, init=10.0, lr=3e-4), {"C5.1 perhaps-too-wide"}),
    "weights x 10, rate x 10": (partial(adamw, init=10.0), {"C5.1 perhaps-too-wide"}),
    "weights x 0": (partial(adamw, init=0.0), {"C5.1 alike"}),
    "betas swapped": (partial(adamw, betas=(0.999, 0.9)), {"C7.4 betas"}),
    "momentum 0.998": (partial(sgd, momentum=0.998, lr=1e-3), {"C7.2 momentum-too-long"}),
    "decay 8": (partial(adamw, weight_decay=8.0), {"C7.3 too-strong"}),
    "one expert alone": (partial(mixture, favour=25.0), {"C7.1 starved"}),
    "biases at 30": (partial(regression, bias=30.0), {"C5.1 perhaps-bias"}),
}


@pytest.mark.parametrize(("program", "named"), BROKEN.values(), ids=BROKEN)
def test_the_size_that_is_off_is_named(program: Program, named: set[str], tmp_path: Path) -> None:
    report = program(tmp_path / "run")
    assert report.headline is not None, str(report)
    assert f"{report.headline.question.code} {report.headline.answer.outcome}" in named, str(report)
    assert report.headline.answer.experiment


HEALTHY: dict[str, Program] = {
    "as it should be": adamw,
    "SGD": sgd,
    "rate / 3": partial(adamw, lr=1e-3),
    "rate x 3": partial(adamw, lr=1e-2),
    "decay 1": partial(adamw, weight_decay=1.0),
    "SGD, decay 0.001": partial(sgd, weight_decay=1e-3),
    "epsilon 0.0001": partial(adamw, eps=1e-4),
    "dropout 0.5": partial(adamw, dropout=0.5),
    "smoothing 0.1": partial(adamw, smoothing=0.1),
    "weights x 1.5": partial(adamw, init=1.5),
    "momentum 0.95": partial(sgd, momentum=0.95),
    "momentum 0.99": partial(sgd, momentum=0.99, lr=2e-3),
    "betas (0.95, 0.95)": partial(adamw, betas=(0.95, 0.95)),
    "betas (0.5, 0.9)": partial(adamw, betas=(0.5, 0.9)),
    "output starts at zero": partial(adamw, last=0.0),
    "four experts": partial(mixture, favour=0.0),
    "biases at 0.5": partial(regression, bias=0.5),
}


@pytest.mark.parametrize("program", HEALTHY.values(), ids=HEALTHY)
def test_a_size_that_works_is_not_suspected(program: Program, tmp_path: Path) -> None:
    report = program(tmp_path / "run")
    assert not [asked.question.code for asked in report.suspects], str(report)
    assert report.verdict == "healthy", str(report)
