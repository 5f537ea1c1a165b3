"""Schedulers and optimizers that a replay must not step as if they were the plain kind."""

from pathlib import Path

import torch
from torch import Tensor, nn

import steadyrun


def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
    given: Tensor = model(batch)
    return given.square().mean()


def plateau_task() -> steadyrun.Task:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    return steadyrun.Task(model, optimizer, loss_fn, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0))


def test_a_scheduler_that_waits_for_a_metric(tmp_path: Path) -> None:
    task = plateau_task()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, scheduler=task.scheduler, loss_fn=loss_fn, capture={"every": 10})
        for _ in range(40):
            batch = torch.randn(8, 4)
            loss = loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            assert task.scheduler is not None
            task.scheduler.step(float(loss.detach()))
            run.step(loss, batch=batch)
        run.incident("look")
    result = steadyrun.replay(tmp_path / "run", plateau_task)
    assert result.proof.verdict == "bit-equal", str(result)


def test_a_run_step_without_an_optimizer_step(tmp_path: Path) -> None:
    """A loop that hands over each micro-batch, and steps its optimizer after four of them."""
    task = plateau_task()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=loss_fn)
        for step in range(40):
            batch = torch.randn(8, 4)
            loss = loss_fn(task.model, batch)
            loss.backward()
            if step % 4 == 3:
                task.optimizer.step()
                task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
    result = steadyrun.replay(tmp_path / "run", plateau_task)
    assert result.incident.first_step == 0
    assert result.proof.verdict == "bit-equal", str(result)
