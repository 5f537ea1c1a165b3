"""Broken programs that a stranger saw end in "healthy": each must be at least suspect. And their healthy twins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import steadyrun

Batch = tuple[Tensor, Tensor]
CLASSES, WIDTH, STEPS = 10, 20, 400


class Task:
    """Ten classes of points around their centres; `shuffled` takes the labels from other points."""

    def __init__(self, *, shuffled: bool = False, offset: float = 0.0, size: int = 640) -> None:
        generator = torch.Generator().manual_seed(3)
        centres = 1.2 * torch.randn(CLASSES, WIDTH, generator=generator)
        self.labels = torch.randint(CLASSES, (size + 320,), generator=generator)
        self.inputs = centres[self.labels] + torch.randn(size + 320, WIDTH, generator=generator) + offset
        if shuffled:
            self.labels = self.labels[torch.randperm(size + 320, generator=generator)]
        self.size, self._generator = size, generator

    def batches(self, steps: int) -> Iterator[Batch]:
        for _ in range(steps):
            chosen = torch.randint(self.size, (32,), generator=self._generator)
            yield self.inputs[chosen], self.labels[chosen]

    @property
    def held_out(self) -> Batch:
        return self.inputs[self.size :], self.labels[self.size :]


def classifier(hidden: int = 64, norm: Callable[[int], nn.Module] | None = None) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, hidden), norm(hidden) if norm else nn.Identity(), nn.ReLU(), nn.Linear(hidden, CLASSES)
    )


def train(
    folder: Path,
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    loss_fn: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    rate: Callable[[int], float] | None = None,
    steps: int = STEPS,
) -> steadyrun.Report:
    base = optimizer.param_groups[0]["lr"]
    with steadyrun.record(folder, config={"num_classes": CLASSES, "init": "random"}) as run:
        run.watch(model, optimizer, capture=False)
        for step, (inputs, labels) in enumerate(task.batches(steps)):
            optimizer.param_groups[0]["lr"] = base * (rate(step) if rate else 1.0)
            loss = loss_fn(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run.step(loss, batch=(inputs, labels))
            if step % 50 == 49:
                model.eval()
                with torch.no_grad():
                    inputs, labels = task.held_out
                    run.val(loss_fn(model(inputs), labels))
                model.train()
    return steadyrun.check(folder)


def sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def adam(model: nn.Module, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=lr)


def rate_of_three(folder: Path) -> steadyrun.Report:
    """SGD with a rate of 3: the loss explodes, every unit dies, and it rests near ln 10."""
    model = classifier()
    return train(folder, Task(), model, sgd(model, 3.0))


def statistics_that_never_move(folder: Path) -> steadyrun.Report:
    """BatchNorm with momentum 0 and inputs far from 0: evaluation divides by the initial statistics."""
    model = classifier(norm=lambda width: nn.BatchNorm1d(width, momentum=0.0))
    return train(folder, Task(offset=30.0), model, adam(model))


def labels_of_other_points(folder: Path) -> steadyrun.Report:
    """Labels that were shuffled without their inputs: only memorising helps."""
    model = classifier(hidden=256)
    return train(folder, Task(shuffled=True), model, adam(model))


def ends_above_its_best(folder: Path) -> steadyrun.Report:
    """The rate is raised a hundredfold for the last third: the loss climbs back and stays there."""
    model = classifier()
    return train(folder, Task(), model, adam(model), rate=lambda step: 1.0 if step < 270 else 100.0)


def probabilities_to_cross_entropy(folder: Path) -> steadyrun.Report:
    """exp(log_softmax) before a cross-entropy: the loss cannot fall below 1.46."""
    model = classifier()

    def loss_fn(scores: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(functional.log_softmax(scores, 1).exp(), labels)

    return train(folder, Task(), model, sgd(model, 0.05), loss_fn=loss_fn)


BROKEN = [
    rate_of_three,
    statistics_that_never_move,
    labels_of_other_points,
    ends_above_its_best,
    probabilities_to_cross_entropy,
]


@pytest.mark.parametrize("program", BROKEN, ids=lambda program: program.__name__)
def test_a_broken_run_is_never_healthy(program: Callable[[Path], steadyrun.Report], tmp_path: Path) -> None:
    report = program(tmp_path / "run")
    assert report.verdict in {"fault", "suspect"}, str(report)
    assert report.exit_code in {1, 4}
    assert report.headline is not None
    assert report.headline.answer.fix
    assert any(sign.colour == "red" for sign in report.vital_signs) or report.verdict == "fault"


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("norm", [None, nn.BatchNorm1d], ids=["plain", "batch-norm"])
def test_the_healthy_twin_is_healthy(optimizer: str, norm: Callable[[int], nn.Module] | None, tmp_path: Path) -> None:
    model = classifier(norm=norm)
    report = train(tmp_path / "run", Task(), model, adam(model) if optimizer == "adam" else sgd(model, 0.02))
    assert report.verdict == "healthy", str(report)
    assert report.exit_code == 0
    assert math.isclose(sum(sign.colour == "green" for sign in report.vital_signs), 6, abs_tol=1)
