"""The same step in float32: what was an overflow works there, and afterwards everything is as it was."""

from collections import namedtuple
from typing import Any

import pytest
import torch
from nonfinite import build
from torch import nn

from steadyrun.program.task import Task
from steadyrun.replay.hunt import as_float32, fp32, hunt

Pair = namedtuple("Pair", "x y")


def small_task(dtype: torch.dtype) -> Task:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(dtype)
    return Task(model, torch.optim.Adam(model.parameters(), lr=1e-3), lambda model, batch: model(batch).pow(2).mean())


def step(task: Task, batch: Any) -> Any:
    loss = task.loss_fn(task.model, batch)
    loss.backward()
    task.optimizer.step()
    return loss.detach()


def tensors(task: Task) -> list[torch.Tensor]:
    state = [moment for moments in task.optimizer.state.values() for moment in moments.values()]
    gradients = [parameter.grad for parameter in task.model.parameters()]
    return [tensor for tensor in [*task.model.state_dict().values(), *state, *gradients] if tensor is not None]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("steps_before", [0, 1])
def test_everything_is_as_it_was_afterwards(dtype: torch.dtype, steps_before: int) -> None:
    task, batch = small_task(dtype), torch.randn(8, 4, dtype=dtype)
    for _ in range(steps_before):
        step(task, batch)
    parameters = list(task.model.parameters())
    before = [tensor.clone() for tensor in tensors(task)]
    with fp32(task):
        assert {parameter.dtype for parameter in task.model.parameters()} == {torch.float32}
        assert {tensor.dtype for tensor in tensors(task) if tensor.is_floating_point()} == {torch.float32}
        step(task, as_float32(batch))
    assert all(mine is theirs for mine, theirs in zip(parameters, task.model.parameters(), strict=True))
    for mine, theirs in zip(before, tensors(task), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)
    assert len(task.optimizer.state) == (len(parameters) if steps_before else 0)
    step(task, batch)


def test_everything_is_as_it_was_after_an_error() -> None:
    task = small_task(torch.float16)
    with pytest.raises(RuntimeError, match="stop"), fp32(task):
        raise RuntimeError("stop")
    assert {parameter.dtype for parameter in task.model.parameters()} == {torch.float16}
    assert torch.autocast.__enter__.__module__ == "torch.amp.autocast_mode"


def test_autocast_is_off_whoever_enters_it() -> None:
    made_before = torch.autocast("cpu", torch.bfloat16)
    task = small_task(torch.float32)
    x = torch.randn(2, 4)
    with torch.autocast("cpu", torch.bfloat16), fp32(task):
        assert task.model(x).dtype is torch.float32
        with made_before:
            assert task.model(x).dtype is torch.float32
        with torch.amp.autocast("cpu", dtype=torch.float16):
            assert task.model(x).dtype is torch.float32
    with made_before:
        assert task.model(x).dtype is torch.bfloat16


def test_overflow_is_gone_in_float32_and_structure_is_not() -> None:
    for name, cured in (("past 65504", True), ("a row fully masked", False)):
        task, execute, batch = build(name)
        with fp32(task):
            assert (hunt(task, execute, batch) is None) is cured


def test_a_batch_keeps_its_shape() -> None:
    half, whole = torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.long)
    given = {"a": [half, whole], "b": (half,), "c": Pair(half, "text"), "d": 3}
    made = as_float32(given)
    assert made["a"][0].dtype is torch.float32
    assert made["a"][1] is whole
    assert isinstance(made["b"], tuple)
    assert isinstance(made["c"], Pair)
    assert made["c"].x.dtype is torch.float32
    assert (made["c"].y, made["d"]) == ("text", 3)
