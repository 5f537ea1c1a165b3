"""A step that raised: its batch is found, and the replay says whether it raised again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import steadyrun


class Refuses(torch.autograd.Function):
    """Fails in the backward pass where a token is large."""

    @staticmethod
    def forward(ctx, given, tokens):  # type: ignore[no-untyped-def]
        ctx.large = bool(tokens.max() > 1_000)
        return given * 1

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        if ctx.large:
            raise RuntimeError("too large")
        return gradient, None


def embedded(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def refused(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(Refuses.apply(model(batch[0]), batch[0]), batch[1])


def task_with(loss_fn: Callable[..., Tensor]) -> steadyrun.Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5_000, 4), nn.Flatten(), nn.Linear(16, 2))
    return steadyrun.Task(model, torch.optim.SGD(model.parameters(), 0.1), loss_fn)


def train(path: Path, task: steadyrun.Task, bad: int, token: int) -> Path:
    """The batch is a tuple made on the spot, twice a step: its id is soon another tuple's."""
    with steadyrun.record(path) as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for step in range(bad + 1):
            x = torch.randint(0, 20, (4, 4))
            y = x[:, 0] % 2
            if step == bad:
                x[0, 0] = token
            loss = task.loss_fn(task.model, (x, y))
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=(x, y))
    return path


@pytest.mark.parametrize("bad", [0, 9], ids=["the first step", "a later step"])
def test_in_the_forward_pass(tmp_path: Path, bad: int) -> None:
    with pytest.raises(IndexError):
        train(tmp_path / "run", task_with(embedded), bad, token=9_999)
    result = steadyrun.replay(tmp_path / "run", lambda: task_with(embedded))
    assert result.proof.holds, str(result)
    assert result.proof.raised_again
    assert result.raised.startswith("IndexError")


def test_in_the_backward_pass(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="too large"):
        train(tmp_path / "run", task_with(refused), 9, token=4_999)
    result = steadyrun.replay(tmp_path / "run", lambda: task_with(refused))
    assert result.proof.raised_again, str(result)


def test_before_anything_was_handed_over(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="too large"):
        train(tmp_path / "run", task_with(refused), 0, token=4_999)
    with pytest.raises(ValueError, match="was not found"):
        steadyrun.replay(tmp_path / "run", lambda: task_with(refused))


def test_outside_of_a_step(tmp_path: Path) -> None:
    task = task_with(embedded)
    with pytest.raises(OSError, match="disk"), steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for _ in range(5):
            batch = (torch.randint(0, 20, (4, 4)), torch.ones(4, dtype=torch.int64))
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        raise OSError("disk")
    result = steadyrun.replay(tmp_path / "run", lambda: task_with(embedded))
    assert result.proof.verdict == "bit-equal"
    assert "Step 5 was not replayed" in str(result)


@dataclass
class Pair:
    x: Tensor
    y: Tensor

    @property
    def both(self) -> tuple[Tensor, Tensor]:
        return self.x, self.y


def test_a_replay_that_raises_where_the_run_did_not(tmp_path: Path) -> None:
    """A property of the batch's class is not kept: that is no fault of the run."""

    def loss_fn(model: nn.Module, batch: Pair) -> Tensor:
        return embedded(model, batch.both)

    task = task_with(loss_fn)
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=loss_fn)
        for _ in range(5):
            batch = Pair(torch.randint(0, 20, (4, 4)), torch.ones(4, dtype=torch.int64))
            loss = loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
    result = steadyrun.replay(tmp_path / "run", lambda: task_with(loss_fn))
    assert result.proof.verdict == "not-reproducible"
    assert "but not their methods" in result.proof.differences[0].message
    assert result.culprit is None
