"""How a hunt behaves around programs that raise, skip, scale, compile or return other things than a loss tensor."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadyrun.incidents.hunt import Culprit, hunt
from steadyrun.incidents.task import Task

WIDTH = 8


class Spot(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def network(function: Callable[[Tensor], Tensor] = lambda x: x) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Sequential(Spot(function)), nn.Linear(WIDTH, WIDTH))


def squares(model: nn.Module, batch: Any) -> Tensor:
    return model(batch).pow(2).mean()


def plain_step(task: Task, batch: Any) -> Any:
    task.optimizer.zero_grad()
    loss = task.loss_fn(task.model, batch)
    loss.backward()
    task.optimizer.step()
    return loss.detach()


def hunted(
    function: Callable[[Tensor], Tensor] = lambda x: x,
    step: Callable[[Task, Any], Any] = plain_step,
    loss: Callable[..., Tensor] = squares,
    batch: Any = None,
    scaler: Any = None,
    wrap: Callable[[Any], Any] = lambda model: model,
) -> Culprit | None:
    model = wrap(network(function))
    task = Task(model, torch.optim.SGD(model.parameters(), lr=1e-3), loss, scaler=scaler)
    batch = torch.randn(4, 6, WIDTH) if batch is None else batch
    return hunt(task, lambda: step(task, batch), batch)


def over_nothing(x: Tensor) -> Tensor:
    return x / (x * 0)


def root_at_zero(x: Tensor) -> Tensor:
    return x + (x * 0).sqrt()


def named(found: Culprit | None) -> tuple[str, ...]:
    assert found is not None
    return found.stage, found.module, found.operation, found.cause


DIVISION = ("forward", "1.0", "div", "division-by-zero")
ROOT = ("backward", "1.0", "sqrt", "gradient-at-zero")


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
        found = hunted(root_at_zero, step)
    assert named(found) == ROOT


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


def test_a_later_micro_batch() -> None:
    calls = []

    def second(x: Tensor) -> Tensor:
        calls.append(1)
        return root_at_zero(x) if len(calls) == 2 else x

    def step(task: Task, batch: Any) -> Any:
        total = 0.0
        for rows in batch.split(2):
            loss = task.loss_fn(task.model, rows) / 2
            loss.backward()
            total += float(loss.detach())
        task.optimizer.step()
        return total

    assert named(hunted(second, step)) == ROOT


def scaled_step(task: Task, batch: Any) -> Any:
    with torch.autocast("cpu", torch.float16):
        loss = task.loss_fn(task.model, batch)
    task.scaler.scale(loss).backward()
    task.scaler.step(task.optimizer)
    task.scaler.update()
    return loss.detach()


def scaler(scale: float) -> Any:
    return torch.amp.GradScaler("cpu", init_scale=scale)


@pytest.mark.parametrize("scale", [2.0**8, 2.0**40, 1e38])
def test_a_scaler_that_skips_is_no_culprit(scale: float) -> None:
    assert hunted(step=scaled_step, scaler=scaler(scale), loss=lambda m, b: (m(b).float() * 9).pow(2).mean()) is None


def test_under_a_scaler_what_no_scale_cures_is_named() -> None:
    assert named(hunted(root_at_zero, scaled_step, scaler=scaler(16.0))) == ROOT
    assert named(hunted(over_nothing, scaled_step, scaler=scaler(16.0))) == DIVISION


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_scaling_by_hand_that_skips_is_no_culprit(size: float) -> None:
    def step(task: Task, batch: Any) -> Any:
        loss = task.loss_fn(task.model, batch)
        (loss * 1e30).backward()
        gradients = [each.grad for each in task.model.parameters()]
        if all(torch.isfinite(each).all() for each in gradients):
            for each in gradients:
                each.div_(1e30)
            task.optimizer.step()
        return loss.detach()

    assert hunted(lambda x: x * size, step) is None


def test_clipping_by_hand_over_a_zero_norm() -> None:
    def step(task: Task, batch: Any) -> Any:
        (loss := task.loss_fn(task.model, batch)).backward()
        norm = torch.stack([each.grad.norm() for each in task.model.parameters()]).norm()
        for each in task.model.parameters():
            each.grad.div_(norm)
        task.optimizer.step()
        return loss.detach()

    found = hunted(step=step, loss=lambda model, batch: model(batch).sum() * 0)
    assert named(found) == ("update", "0.weight", "div", "division-by-zero")


def test_gradients_that_are_taken_by_hand() -> None:
    def step(task: Task, batch: Any) -> Any:
        weights = list(task.model.parameters())
        loss = task.loss_fn(task.model, batch)
        with torch.no_grad():
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight -= 0.1 * gradient
        return loss.detach()

    assert hunted(step=step) is None
    assert named(hunted(root_at_zero, step)) == ROOT


def test_a_gradient_hook_of_the_programs_own() -> None:
    def step(task: Task, batch: Any) -> Any:
        handle = task.model[2].bias.register_hook(lambda gradient: gradient / 0)
        loss = plain_step(task, batch)
        handle.remove()
        return loss

    found = hunted(step=step)
    assert found is not None
    assert (found.stage, found.module, found.parameter) == ("backward", "2", "2.bias")
    assert found.where.startswith("test_hunt_behaviour.py")


def test_a_penalty_on_gradients() -> None:
    def step(task: Task, batch: Any) -> Any:
        batch = batch.clone().requires_grad_()
        out = task.model(batch)
        (slope,) = torch.autograd.grad(out.sum(), batch, create_graph=True)
        loss = out.mean() + (slope.norm(dim=-1) - 1).pow(2).mean()
        loss.backward()
        task.optimizer.step()
        return loss.detach()

    assert hunted(torch.tanh, step) is None
    # The first derivative of x**1.5 is finite at zero, the second is not.
    assert named(hunted(lambda x: x + (x * 0) ** 1.5, step)) == ("backward", "1.0", "pow", "gradient-at-zero")


def test_a_mask_in_the_batch_is_legal_until_a_row_is_all_masked() -> None:
    def attending(model: nn.Module, batch: Any) -> Tensor:
        x = model(batch["x"])
        return (x @ x.transpose(1, 2) + batch["mask"]).softmax(dim=-1).pow(2).mean()

    mask = torch.full((6, 6), -math.inf).triu(1)
    x = torch.randn(4, 6, WIDTH)
    assert hunted(loss=attending, batch={"x": x, "mask": mask}) is None
    found = hunted(loss=attending, batch={"x": x, "mask": torch.full((6, 6), -math.inf)})
    assert named(found) == ("loss", "", "softmax", "fully-masked-row")


def test_a_tensor_from_outside_of_the_step() -> None:
    weights = torch.tensor([math.nan] + [1.0] * (WIDTH - 1))
    targets = torch.zeros(24, dtype=torch.long)

    def weighted(model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch).flatten(0, 1), targets, weight=weights)

    found = hunted(loss=weighted)
    assert found is not None
    assert (found.stage, found.cause) == ("data", "non-finite-input")
    assert "from outside of the step" in found.message


def test_moments_that_overflow_are_named_though_the_parameter_stands_still() -> None:
    model = network()
    task = Task(model, torch.optim.Adam(model.parameters()), lambda model, batch: (model(batch) * 1e12).pow(2).mean())
    batch = torch.randn(4, 6, WIDTH)
    found = hunt(task, lambda: plain_step(task, batch), batch)
    assert found is not None
    assert (found.stage, found.module, found.cause) == ("update", "0.weight", "float32-overflow")


def test_a_compiled_model_is_hunted_as_it_is_written() -> None:
    def compiled(model: nn.Module) -> Any:
        made = torch.compile(model, backend="eager")
        made(torch.randn(4, 6, WIDTH))
        return made

    assert hunted(wrap=compiled) is None
    assert named(hunted(root_at_zero, wrap=compiled)) == ROOT


def test_a_loss_module_is_no_part_of_the_model() -> None:
    criterion = Spot(lambda x: torch.log(x * 0).mean())
    found = hunted(loss=lambda model, batch: criterion(model(batch)))
    assert named(found) == ("loss", "", "log", "log-of-zero")
    assert found is not None
    assert found.module_type == "Spot"


def test_a_failure_of_the_checker_is_not_the_programs_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.incidents.hunt import checking

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(checking, "describe", broken)
    assert hunted() is None
    found = hunted(over_nothing)
    assert found is not None
    assert (found.stage, found.cause) == ("loss", "unknown")
