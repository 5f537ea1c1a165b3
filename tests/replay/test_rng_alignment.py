"""A step that draws before its forward pass, in a loop that draws before the step: replay finds where it began."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import steadyrun
from steadyrun.program.random_state import take


def noisy_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """As a diffusion model: a random time and noise, then the model."""
    level = torch.randint(1, 50, (len(batch[0]), 1)) / 50
    noise = torch.randn_like(batch[0])
    return nn.functional.mse_loss(model(batch[0] * (1 - level) + noise * level), noise)


def mixed_loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """As mixup: numpy draws the share."""
    share = float(np.random.beta(0.4, 0.4))
    mixed: Tensor = model(batch[0] * share + batch[0].flip(0) * (1 - share))
    return mixed.square().mean()


def task_with(loss_fn: object) -> steadyrun.Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 8))
    return steadyrun.Task(model, torch.optim.Adam(model.parameters(), 1e-2), loss_fn)  # type: ignore[arg-type]


def train(path: Path, task: steadyrun.Task, *, autocast: bool = False, numpy_loop: bool = False) -> Path:
    """A loader that shuffles draws at the start of each epoch, from the same generator as the loss function."""
    loader = DataLoader(TensorDataset(torch.randn(64, 8)), 16, shuffle=True)
    with steadyrun.record(path) as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn, capture={"every": 20})
        for _ in range(10):
            for batch in loader:
                if numpy_loop:
                    np.random.rand()
                with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                    loss = task.loss_fn(task.model, batch)
                loss.backward()
                task.optimizer.step()
                task.optimizer.zero_grad()
                run.step(loss, batch=batch)
        run.incident("look")
    return path


def test_noise_drawn_after_a_loader_that_shuffles(tmp_path: Path) -> None:
    run = train(tmp_path / "run", task_with(noisy_loss))
    result = steadyrun.replay(run, lambda: task_with(noisy_loss))
    assert result.proof.verdict == "bit-equal", str(result)
    assert result.proof.compared >= 20


def test_autocast_in_the_loop_and_a_loader_that_shuffles(tmp_path: Path) -> None:
    """The window begins with an epoch: finding out about autocast must not cost the state of the forward pass."""

    def plain(model: nn.Module, batch: list[Tensor]) -> Tensor:
        given: Tensor = model(batch[0])
        return given.square().mean()

    run = train(tmp_path / "run", task_with(plain), autocast=True)
    result = steadyrun.replay(run, lambda: task_with(plain))
    assert result.incident.first_step == 0
    assert result.proof.verdict == "bit-equal", str(result)


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    run = train(tmp_path / "run", task_with(mixed_loss), numpy_loop=True)
    result = steadyrun.replay(run, lambda: task_with(mixed_loss))
    assert not result.proof.holds
    assert any(difference.what == "random" for difference in result.proof.differences), str(result)


def test_a_gaussian_that_numpy_holds_back_is_seen_when_it_goes() -> None:
    """It is drawn without a new word of the generator."""
    np.random.seed(0)
    np.random.standard_normal()
    first = take()
    np.random.standard_normal()
    second = take(first)
    assert first.numpy[3] == 1
    assert second.numpy[3] == 0
    assert take(second).numpy is not None


class Gone:
    def __iter__(self) -> Iterator[Any]:
        raise OSError("the data is elsewhere")


def loaded_task(loader: Any = None) -> steadyrun.Task:
    task = task_with(noisy_loss)
    task.loader = loader or DataLoader(TensorDataset(torch.arange(64.0).reshape(8, 8)), 2, shuffle=True)
    return task


def test_a_loader_that_goes_on_from_the_seed_of_the_factory_is_the_same(tmp_path: Path) -> None:
    task = loaded_task()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for batch in task.loader or ():
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
    assert not steadyrun.replay(tmp_path / "run", lambda: loaded_task()).proof.differences
    lost = steadyrun.replay(tmp_path / "run", lambda: loaded_task(Gone())).proof
    assert lost.holds
    assert "elsewhere" in lost.differences[0].message
