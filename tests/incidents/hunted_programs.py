"""A small model with one place for a fault, and the hunt on one step of it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.program.task import Task
from steadyrun.replay.hunt import Culprit, hunt

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


def named(culprit: Culprit | None) -> tuple[str, ...]:
    assert culprit is not None
    return culprit.stage, culprit.module, culprit.operation, culprit.cause


DIVISION = ("forward", "1.0", "div", "division-by-zero")
ROOT = ("backward", "1.0", "sqrt", "gradient-at-zero")
