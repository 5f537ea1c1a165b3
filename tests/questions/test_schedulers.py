"""C2.1 on recorded runs with real schedulers: the ways people use them that are no fault, and a lost one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import steadyrun
from steadyrun.questions.form import Answer
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS

STEPS = 120


def train(
    path: Path,
    make: Callable[[Any], Any],
    every: int = 1,
    config: dict[str, Any] | None = None,
    steps: int = STEPS,
    resume: tuple[Any, Any] | None = None,
) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = make(optimizer)
    if resume:
        optimizer.load_state_dict(resume[0])
        scheduler.load_state_dict(resume[1])
    with steadyrun.record(path, config=config or {}) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(steps):
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if every and step % every == every - 1:
                scheduler.step()
            run.step(loss)
    return optimizer.state_dict(), scheduler.state_dict()


def answer(path: Path) -> Answer:
    return QUESTIONS["C2.1"].ask(Signals(steadyrun.open_run(path)))


MAKERS = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS),
    "cosine beyond its end": lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS // 3),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 30),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=STEPS + 1),
    "steps": lambda o: lr_scheduler.StepLR(o, 25, gamma=0.1),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=20),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_scheduler_that_is_stepped_passes(tmp_path: Path, name: str) -> None:
    train(tmp_path, MAKERS[name])
    assert answer(tmp_path).outcome == "pass", answer(tmp_path).message


def test_stepping_once_per_epoch_is_no_fault_where_nothing_else_is_declared(tmp_path: Path) -> None:
    train(tmp_path, MAKERS["steps"], every=20)
    assert answer(tmp_path).outcome == "pass"


def test_a_scheduler_that_follows_a_metric_is_not_judged(tmp_path: Path) -> None:
    train(tmp_path, lambda o: lr_scheduler.ReduceLROnPlateau(o), every=0)
    assert answer(tmp_path).kind == "not-applicable"


def test_a_watched_scheduler_that_is_never_stepped_is_noted(tmp_path: Path) -> None:
    train(tmp_path, MAKERS["cosine"], every=0)
    assert answer(tmp_path).outcome == "idle"


def test_another_hand_on_the_rate_is_noted(tmp_path: Path) -> None:
    class Meddling(lr_scheduler.StepLR):
        def step(self, epoch: Any = None) -> None:
            super().step(epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = 0.05 if getattr(self, "meddle", False) else group["lr"]

    def make(optimizer: Any) -> Any:
        scheduler = Meddling(optimizer, 1000)
        optimizer.register_step_pre_hook(lambda o, *_: o.param_groups[0].update(lr=0.03))
        return scheduler

    train(tmp_path, make)
    assert answer(tmp_path).outcome == "differs-from-scheduler"


DECLARED = {"schedule": "cosine", "lr_max": 0.1, "lr_min": 0.0, "total_steps": 2 * STEPS, "warmup_steps": 0}


def whole(optimizer: Any) -> Any:
    return lr_scheduler.CosineAnnealingLR(optimizer, 2 * STEPS)


def test_a_resume_that_forgets_the_scheduler_is_a_fault(tmp_path: Path) -> None:
    train(tmp_path, whole, config=DECLARED)
    train(tmp_path, whole, config=DECLARED)
    restarted = answer(tmp_path)
    assert (restarted.kind, restarted.outcome, restarted.step) == ("fault", "restarted", STEPS)


def test_a_resume_that_loads_the_scheduler_passes(tmp_path: Path) -> None:
    states = train(tmp_path, whole, config=DECLARED)
    train(tmp_path, whole, config=DECLARED, resume=states)
    assert answer(tmp_path).outcome == "pass", answer(tmp_path).message


@pytest.mark.parametrize(("epochs", "declared"), [(6, 100), (7, 100), (6, 96)])
def test_whole_epochs_may_end_beside_the_declared_step(tmp_path: Path, epochs: int, declared: int) -> None:
    config = {"schedule": "cosine", "lr_max": 0.1, "lr_min": 0.0, "total_steps": declared, "warmup_steps": 0}
    make = lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)  # noqa: E731
    train(tmp_path / "run", make, every=16, config=config, steps=16 * epochs)
    answer = QUESTIONS["C2.1"].ask(Signals(steadyrun.open_run(tmp_path / "run")))
    assert answer.kind == "pass", answer.message
