"""Batches as people make them: none of them may cost the capture, and what is lost is named."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steadyrun
from steadyrun.program.packing import pack, unpack


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    A = "a"


@dataclass(frozen=True, slots=True)
class Slotted:
    inputs: Tensor
    targets: Tensor


@pytest.mark.parametrize(
    ("value", "back"),
    [(Number.ONE, 1), (Word.A, "a"), (np.str_("b"), "b")],
    ids=["number", "word", "text"],
)
def test_an_enum_is_what_it_stands_for(value: Any, back: Any) -> None:
    packed = pack({"a": value})
    assert unpack(packed.tree, packed.tensors) == {"a": back}
    assert not packed.lost


def test_an_array_of_another_byte_order_comes_back() -> None:
    packed = pack(np.arange(3, dtype=">f4"))
    assert unpack(packed.tree, packed.tensors).tolist() == [0.0, 1.0, 2.0]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_left_out_and_named() -> None:
    packed = pack({"a": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])})
    assert packed.lost == ["a (Tensor)"]


def slotted_loss(model: nn.Module, batch: Slotted) -> Tensor:
    return nn.functional.mse_loss(model(batch.inputs), batch.targets)


def slotted_task() -> steadyrun.Task:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return steadyrun.Task(model, torch.optim.Adam(model.parameters()), slotted_loss)


def test_a_dataclass_with_slots(tmp_path: Path) -> None:
    task = slotted_task()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for _ in range(5):
            batch = Slotted(torch.randn(8, 4), torch.randn(8, 1))
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
    assert steadyrun.replay(tmp_path / "run", slotted_task).proof.verdict == "bit-equal"


def listed_loss(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    return nn.functional.mse_loss(model(batch["x"]), batch["y"] * len(batch.get("names", "a")))


def listed_task() -> steadyrun.Task:
    task = slotted_task()
    task.loss_fn = listed_loss
    return task


@pytest.mark.parametrize("name", ["path", "names"], ids=["not looked at", "looked at"])
def test_a_part_that_is_lost_matters_only_where_it_is_used(tmp_path: Path, name: str) -> None:
    task = listed_task()
    with steadyrun.record(tmp_path / "run") as run:
        run.watch(task.model, task.optimizer, loss_fn=task.loss_fn)
        for _ in range(5):
            batch = {"x": torch.randn(8, 4), "y": torch.randn(8, 1), name: range(3)}
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            task.optimizer.step()
            task.optimizer.zero_grad()
            run.step(loss, batch=batch)
        run.incident("look")
    result = steadyrun.replay(tmp_path / "run", listed_task)
    assert result.proof.holds is (name == "path"), str(result)
    if name == "names":
        assert any("names (range)" in difference.message for difference in result.proof.differences)
