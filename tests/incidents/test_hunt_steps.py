"""Training steps of many kinds: scaled, accumulated, clipped, by hand, in hooks and in closures."""

from typing import Any

import pytest
import torch
from hunted_programs import DIVISION, ROOT, WIDTH, hunted, named, network, over_nothing, plain_step, root_at_zero
from torch import Tensor

from steadyrun.program.task import Task
from steadyrun.replay.hunt import hunt


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
        gradients = [parameter.grad for parameter in task.model.parameters()]
        if all(torch.isfinite(gradient).all() for gradient in gradients):
            for gradient in gradients:
                gradient.div_(1e30)
            task.optimizer.step()
        return loss.detach()

    assert hunted(lambda x: x * size, step) is None


def test_clipping_by_hand_over_a_zero_norm() -> None:
    def step(task: Task, batch: Any) -> Any:
        (loss := task.loss_fn(task.model, batch)).backward()
        norm = torch.stack([parameter.grad.norm() for parameter in task.model.parameters()]).norm()
        for parameter in task.model.parameters():
            parameter.grad.div_(norm)
        task.optimizer.step()
        return loss.detach()

    culprit = hunted(step=step, loss=lambda model, batch: model(batch).sum() * 0)
    assert named(culprit) == ("update", "0.weight", "div", "division-by-zero")


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

    culprit = hunted(step=step)
    assert culprit is not None
    assert (culprit.stage, culprit.module, culprit.parameter) == ("backward", "2", "2.bias")
    assert culprit.where.startswith("test_hunt_steps.py")


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


def test_an_optimizer_that_steps_in_backward() -> None:
    model = network()
    optimizers = [torch.optim.Adam([parameter], eps=0.0) for parameter in model.parameters()]
    for parameter, optimizer in zip(model.parameters(), optimizers, strict=True):
        parameter.register_post_accumulate_grad_hook(lambda _, own=optimizer: own.step())
    task = Task(model, optimizers, lambda model, batch: model[2](model[0](batch)).sum() * 0)
    batch = torch.randn(4, 6, WIDTH)

    def execute() -> Tensor:
        loss = task.loss_fn(model, batch)
        loss.backward()
        return loss.detach()

    culprit = hunt(task, execute, batch)
    assert culprit is not None
    assert (culprit.stage, culprit.operation, culprit.cause) == ("update", "addcdiv", "optimizer-epsilon")


def test_an_optimizer_with_a_closure() -> None:
    def closing(task: Task, batch: Any) -> Any:
        def closure() -> Tensor:
            task.optimizer.zero_grad()
            loss = task.loss_fn(task.model, batch)
            loss.backward()
            return loss

        return task.optimizer.step(closure)

    assert hunted(step=closing) is None
    assert named(hunted(root_at_zero, closing)) == ROOT
    culprit = hunted(step=closing, loss=lambda model, batch: (model(batch) * 0).log().mean())
    assert named(culprit) == ("loss", "", "log", "log-of-zero")


def test_moments_that_overflow_are_named_though_the_parameter_stands_still() -> None:
    model = network()
    task = Task(model, torch.optim.Adam(model.parameters()), lambda model, batch: (model(batch) * 1e12).pow(2).mean())
    batch = torch.randn(4, 6, WIDTH)
    culprit = hunt(task, lambda: plain_step(task, batch), batch)
    assert culprit is not None
    assert (culprit.stage, culprit.module, culprit.cause) == ("update", "0.weight", "float32-overflow")
