"""Real training runs in which one bit is flipped at one step, and others with faults of software or data.

The training loop flips the bit; the task that replay builds does not, just as hardware is not part of a program.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrun
from steadyrun import Task

STEPS, AT = 140, 121  # a spike counts once 100 losses came before it
EXPONENT = 30  # the top bit of a float32's exponent: it makes a number below 2 about 1e38 times larger

Fault = Callable[[Task, int], None]


def flip(tensor: Tensor, index: int = 3, bit: int = EXPONENT) -> None:
    """Flip one bit of one float32, as a memory error does."""
    with torch.no_grad():
        tensor.view(-1).view(torch.int32)[index] ^= 1 << bit


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 24), nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.relu(self.first(x)))
        return out


def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def log_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """A cross entropy by hand: an example whose input is large has a probability of 0, and log(0) is infinite."""
    chances = torch.softmax(model(batch["x"] * batch.get("scale", torch.ones(()))), -1)
    return -(chances.log() * nn.functional.one_hot(batch["y"], 3)).sum(-1).mean()


def adam_task(loss: Any = loss_fn, rate: float = 1e-2) -> Task:
    torch.manual_seed(0)
    model = Classifier()
    return Task(model, torch.optim.AdamW(model.parameters(), lr=rate), loss)


def momentum_task(rate: float = 1e-2) -> Task:
    torch.manual_seed(0)
    model = Classifier()
    return Task(model, torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9), loss_fn)


def squares(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return ((model(batch["x"]) - nn.functional.one_hot(batch["y"], 3)) ** 2).mean()


def fast_task() -> Task:
    """Descent on a square loss with a rate far above the stable one: it diverges to infinity within some steps."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    return Task(model, torch.optim.SGD(model.parameters(), lr=100.0), squares)


def batches() -> Iterator[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    centres = torch.randn(3, 6, generator=generator)
    while True:
        y = torch.randint(0, 3, (16,), generator=generator)
        yield {"x": centres[y] + 0.3 * torch.randn(16, 6, generator=generator), "y": y}


def train(
    path: Path,
    task: Task,
    *,
    in_backward: bool = False,
    in_gradients: Fault | None = None,
    after_update: Fault | None = None,
    spoil: Callable[[dict[str, Tensor], int], None] | None = None,
) -> Path:
    """Train until a loss is not finite, or to the end; the faults act on live tensors at step `AT`."""
    model, optimizer = task.model, task.optimizer
    with steadyrun.record(path, config={"seed": 0}) as run:
        run.watch(model, optimizer, loss_fn=task.loss_fn, monitor=False, capture={"every": 25})
        for step, batch in zip(range(STEPS), batches(), strict=False):
            if spoil is not None:
                spoil(batch, step)
            loss = task.loss_fn(model, batch)
            hook = model.first.weight.register_hook(flipped) if in_backward and step == AT else None
            loss.backward()
            if hook is not None:
                hook.remove()
            if in_gradients is not None and step == AT:
                in_gradients(task, step)
            optimizer.step()
            optimizer.zero_grad()
            if after_update is not None and step == AT:
                after_update(task, step)
            run.step(loss, batch=batch)
    return path


def in_weight(task: Task, _step: int) -> None:
    flip(task.model.second.weight.data)


def in_gradient(task: Task, _step: int) -> None:
    flip(task.model.first.weight.grad)


def flipped(gradient: Tensor) -> Tensor:
    """A gradient on its way through the backward pass, with one bit flipped."""
    wrong = gradient.clone()
    flip(wrong)
    return wrong


def in_moment(task: Task, _step: int) -> None:
    flip(task.optimizer.state[task.model.second.weight]["exp_avg"])


def bad_batch(batch: dict[str, Tensor], step: int) -> None:
    if step == AT:
        batch["x"][5, 2] = torch.nan


def large_batch(batch: dict[str, Tensor], step: int) -> None:
    """One input so large that a probability underflows to 0."""
    batch["scale"] = torch.tensor(1e6 if step == AT else 1.0)
