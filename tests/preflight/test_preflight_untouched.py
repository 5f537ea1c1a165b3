"""After preflight everything is as before, bit for bit: checked against a slow copy of all that there is."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
from programs_model import HEALTHY, Program, Trainer, build
from programs_odd import ODD
from torch import Tensor, nn

from steadyrun.report.preflight import preflight
from steadyrun.report.report import Report


def everything(program: Program) -> dict[str, Any]:
    """Values, identities, flags and random states, in plain words."""
    task = program.task
    facts: dict[str, Any] = {
        "rng torch": torch.get_rng_state(),
        "rng numpy": np.random.get_state(),
        "rng python": random.getstate(),
        "step": task.step,
        "scheduler": None if task.scheduler is None else copy.deepcopy(task.scheduler.state_dict()),
        "scaler": None if task.scaler is None else copy.deepcopy(task.scaler.state_dict()),
        "scaler's tensor": None if task.scaler is None else task.scaler._scale,
    }
    for path, module in task.model.named_modules():
        facts[f"mode {path}"] = module.training
        mine = {name: value for name, value in vars(module).items() if not name.startswith("_") and plain(value)}
        facts[f"attributes {path}"] = copy.deepcopy(mine)
    for name, tensor in [*task.model.named_parameters(), *task.model.named_buffers()]:
        facts[f"tensor {name}"] = tensor.detach().clone()
        facts[f"id {name}"] = (id(tensor), tensor.data_ptr(), tensor.requires_grad)
        facts[f"grad {name}"] = None if tensor.grad is None else (id(tensor.grad), tensor.grad.clone())
    for index, optimizer in enumerate(task.optimizers):
        facts[f"optimizer {index}"] = copy.deepcopy(optimizer.state_dict())
        facts[f"groups {index}"] = [id(optimizer.param_groups), *map(id, optimizer.param_groups)]
        facts[f"members {index}"] = [
            [id(parameter) for parameter in group["params"]] for group in optimizer.param_groups
        ]
        facts[f"state {index}"] = [id(optimizer.state), *(id(state) for state in optimizer.state.values())]
    return facts


def plain(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return all(plain(member) for member in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool | int | float | str | Tensor | None)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def changed(program: Program, before: dict[str, Any]) -> list[str]:
    after = everything(program)
    return [name for name in {**before, **after} if name not in after or not equal(before.get(name), after[name])]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", [*HEALTHY, *ODD])
def test_preflight_leaves_no_trace(name: str) -> None:
    program = build(name)
    before = everything(program)
    preflight(program.task, batches=program.batches, config=program.config)
    assert changed(program, before) == []


@pytest.mark.parametrize("name", ["gpt", "cnn", "lstm", "gan", "bert", "amp"])
def test_in_the_middle_of_training(name: str) -> None:
    """With moments, gradients, a scale and counters that are no longer those of the beginning."""
    program = build(name)
    assert program.task.train_step is not None
    for batch in program.batches[:2]:
        program.task.train_step(program.task, batch)
    program.task.loss_fn(program.task.model, program.batches[0]).backward()
    before = everything(program)
    preflight(program.task, batches=program.batches, config=program.config, deep=True)
    assert changed(program, before) == []


def test_what_only_the_programs_functions_know_is_put_back() -> None:
    torch.manual_seed(0)
    owner = Trainer()
    task = build("trainer").task
    task.model, task.optimizer, task.loss_fn, task.train_step = owner.model, owner.optimizer, owner.loss, owner.step
    before = copy.deepcopy((owner.average.state_dict(), owner.scheduler.state_dict(), owner.seen, owner.history))
    preflight(task, batches=build("trainer").batches)
    assert equal(before, (owner.average.state_dict(), owner.scheduler.state_dict(), owner.seen, owner.history))


def test_training_after_preflight_is_training_without_it() -> None:
    losses = []
    for tried in (False, True):
        program = build("gpt")
        torch.manual_seed(5)
        if tried:
            preflight(program.task, batches=program.batches, config=program.config, deep=True)
        assert program.task.train_step is not None
        losses.append([float(program.task.train_step(program.task, batch)) for batch in program.batches])
    assert losses[0] == losses[1]


class CastOnce:
    """A program that makes its autocast once, as nanoGPT does, and enters it in every step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.context = torch.autocast("cpu", torch.bfloat16)
        self.batches = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(6)]
        self.computed: list[torch.dtype] = []

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with self.context:
            scores = model(batch[0])
        self.computed.append(scores.dtype)
        return nn.functional.cross_entropy(scores.float(), batch[1])

    def train(self) -> list[float]:
        losses = []
        for batch in self.batches:
            loss = self.loss(self.model, batch)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    def try_out(self, **options: Any) -> Report:
        parts = (self.model, self.optimizer, self.loss, self.batches)
        return preflight(*parts, config={"dtype": "bfloat16"}, **options)


def test_an_autocast_that_was_made_once_stays_enabled() -> None:
    plain, tried = CastOnce(), CastOnce()
    tried.try_out(deep=True)
    assert tried.context._enabled
    tried.computed.clear()
    assert tried.train() == plain.train()
    assert set(tried.computed) == {torch.bfloat16}
    assert equal(list(plain.model.parameters()), list(tried.model.parameters()))


def test_precisions_are_compared_where_autocast_was_made_once() -> None:
    program = CastOnce()
    for _ in range(2):
        path = program.try_out(only=["P5.7"]).walk.path
        (answer,) = [asked.answer for asked in path if asked.question.code == "P5.7"]
        assert 0 < answer.measured["relative"] < 0.05, "float32 beside float32 would be equal"


def test_a_learning_rate_in_a_tensor_is_put_back() -> None:
    program = build("regression")
    group = program.task.optimizer.param_groups[0]
    rate = group["lr"] = torch.tensor(0.01)
    program.task.train_step = lambda _task, _batch: rate.mul_(0.5)  # type: ignore[assignment]
    preflight(program.task, batches=program.batches)
    assert group["lr"] is rate
    assert float(rate) == pytest.approx(0.01)
