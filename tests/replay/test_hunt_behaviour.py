"""How a hunt behaves around programs that raise, compile, or return other things than a loss tensor."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hunted_programs import DIVISION, ROOT, WIDTH, Spot, hunted, named, over_nothing, plain_step, root_at_zero
from torch import Tensor, nn
from torch.nn import functional

from steadyrun.program.task import Task


def test_a_check_of_the_programs_own_loses_nothing() -> None:
    def step(task: Task, batch: Any) -> Any:
        loss = task.loss_fn(task.model, batch)
        assert torch.isfinite(loss), "the loss is not finite"

    assert named(hunted(over_nothing, step)) == DIVISION


def test_a_check_inside_a_module_loses_nothing() -> None:
    def checked(x: Tensor) -> Tensor:
        y = over_nothing(x)
        if not torch.isfinite(y).all():
            raise FloatingPointError
        return y

    assert named(hunted(checked)) == DIVISION


def test_anomaly_detection_loses_nothing() -> None:
    def step(task: Task, batch: Any) -> Any:
        with torch.autograd.detect_anomaly():
            return plain_step(task, batch)

    with pytest.warns(UserWarning, match="Anomaly Detection|Error detected|nan"):
        culprit = hunted(root_at_zero, step)
    assert named(culprit) == ROOT


def test_an_error_with_nothing_found_is_the_programs_own() -> None:
    def step(task: Task, batch: Any) -> Any:
        raise RuntimeError("no such file")

    with pytest.raises(RuntimeError, match="no such file"):
        hunted(step=step)
    assert_nothing_left()


@pytest.mark.parametrize("function", [over_nothing, lambda x: x])
def test_nothing_is_left_behind(function: Callable[[Tensor], Tensor]) -> None:
    hunted(function)
    assert_nothing_left()


def assert_nothing_left() -> None:
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.utils._python_dispatch import _len_torch_dispatch_stack

    assert not module._global_forward_hooks
    assert not module._global_forward_pre_hooks
    assert not module._global_forward_hooks_always_called
    assert not module._global_forward_hooks_with_kwargs
    assert not optimizer._global_optimizer_pre_hooks
    assert not optimizer._global_optimizer_post_hooks
    assert _len_torch_dispatch_stack() == 0
    assert torch.autograd.backward.__module__ == "torch.autograd"
    assert torch.autograd.grad.__module__ == "torch.autograd"


def test_a_loss_as_a_number() -> None:
    assert named(hunted(over_nothing, lambda task, batch: task.loss_fn(task.model, batch).item())) == DIVISION


def test_a_mask_in_the_batch_is_legal_until_a_row_is_all_masked() -> None:
    def attending(model: nn.Module, batch: Any) -> Tensor:
        x = model(batch["x"])
        return (x @ x.transpose(1, 2) + batch["mask"]).softmax(dim=-1).pow(2).mean()

    mask = torch.full((6, 6), -math.inf).triu(1)
    x = torch.randn(4, 6, WIDTH)
    assert hunted(loss=attending, batch={"x": x, "mask": mask}) is None
    culprit = hunted(loss=attending, batch={"x": x, "mask": torch.full((6, 6), -math.inf)})
    assert named(culprit) == ("loss", "", "softmax", "fully-masked-row")


def test_a_tensor_from_outside_of_the_step() -> None:
    weights = torch.tensor([math.nan] + [1.0] * (WIDTH - 1))
    targets = torch.zeros(24, dtype=torch.long)

    def weighted(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch).flatten(0, 1), targets, weight=weights)

    culprit = hunted(loss=weighted)
    assert culprit is not None
    assert (culprit.stage, culprit.cause) == ("data", "non-finite-input")
    assert "from outside the step" in culprit.message


def test_a_compiled_model_is_hunted_as_it_is_written() -> None:
    def compiled(model: nn.Module) -> Any:
        made = torch.compile(model, backend="eager")
        made(torch.randn(4, 6, WIDTH))
        return made

    assert hunted(wrap=compiled) is None
    assert named(hunted(root_at_zero, wrap=compiled)) == ROOT


def test_a_loss_module_is_no_part_of_the_model() -> None:
    criterion = Spot(lambda x: torch.log(x * 0).mean())
    culprit = hunted(loss=lambda model, batch: criterion(model(batch)))
    assert named(culprit) == ("loss", "", "log", "log-of-zero")
    assert culprit is not None
    assert culprit.module_type == "Spot"


def test_a_failure_of_the_checker_is_not_the_programs_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.replay.hunt import dispatch_mode

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(dispatch_mode, "describe", broken)
    assert hunted() is None
    culprit = hunted(over_nothing)
    assert culprit is not None
    assert (culprit.stage, culprit.cause) == ("loss", "unknown")
