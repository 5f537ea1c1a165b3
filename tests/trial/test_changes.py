"""The changes of a trial: what they do to a program, what they refuse, and that they are undone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from trial_programs import Round, task

import steadyrun
from steadyrun.trial.custom_functions import checked, custom_functions, plain_backward
from steadyrun.trial.factor import Factor
from steadyrun.trial.factors import factors_for
from steadyrun.trial.twin import Twin


def twin_of(steps: int = 8, **config: Any) -> Twin:
    torch.manual_seed(0)
    return Twin(task(config), steps)


def factors(twin: Twin) -> dict[str, Factor]:
    return {factor.name: factor for factor in factors_for(twin)[0]}


def state(twin: Twin) -> list[Tensor]:
    return [tensor.clone() for tensor in twin.model.state_dict().values()]


QUICK = ("rate*0.1", "no-decay", "default-settings", "default-start", "sgd", "targets-shuffled", "identity:blocks.0")
EVERY = sorted(factors(twin_of(dropout=0.2, smoothing=0.1, eps=1e-3)))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in EVERY])
def test_every_change_trains_and_is_undone(name: str) -> None:
    twin = twin_of(dropout=0.2, smoothing=0.1, eps=1e-3)
    before, settings = state(twin), [dict(group) for group in twin.task.optimizer.param_groups]
    curve = twin.train(factors(twin)[name], 1)
    assert not curve.raised
    assert all(math.isfinite(loss) for losses in curve.losses.values() for loss in losses)
    assert all(torch.equal(one, other) for one, other in zip(before, state(twin), strict=True))
    now = [dict(group) for group in twin.task.optimizer.param_groups]
    assert [{k: v for k, v in group.items() if k != "params"} for group in now] == [
        {k: v for k, v in group.items() if k != "params"} for group in settings
    ]


def test_twins_of_one_seed_share_start_and_data() -> None:
    twin = twin_of(dropout=0.5)
    own = twin.factor("own")
    first, second = twin.train(own, 1), twin.train(own, 1)
    assert first.losses == second.losses
    assert first.training[1:] == second.training[1:]
    assert twin.train(own, 2).losses["held"][0] == first.losses["held"][0]  # a live task has one start


def test_examples_that_are_kept_back_are_never_trained_on() -> None:
    twin = twin_of(40)
    held = {tuple(row.tolist()) for batch in twin.data.held for row in batch[0]}
    trained = {tuple(row.tolist()) for batch in twin.data.training for row in batch[0]}
    assert held
    assert trained
    assert not held & trained


def test_targets_are_found_by_what_the_loss_compares_with() -> None:
    assert twin_of().parts.targets == ("[1]",)
    shuffled = factors(twin_of())["targets-shuffled"].batches(twin_of())
    plain = twin_of().data.training
    assert torch.equal(shuffled[0][0], plain[0][0])
    assert sorted(shuffled[0][1].tolist()) == sorted(plain[0][1].tolist())
    assert not torch.equal(shuffled[0][1], plain[0][1])


def test_a_frozen_part_does_not_move() -> None:
    twin = twin_of()
    moved: list[bool] = []
    factor = factors(twin)["freeze:blocks.0"]
    block = twin.model.get_submodule("blocks.0")
    start = block.weight.detach().clone()
    handle = twin.task.optimizer.register_step_post_hook(lambda *_: moved.append(not torch.equal(start, block.weight)))
    twin.train(factor, 1)
    handle.remove()
    assert len(moved) == 8
    assert not any(moved)


class Rotary(nn.Module):
    """Angles by position, as language models have them."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.arange(x.shape[1]).float()[:, None].expand(-1, x.shape[2])
        return angles.cos(), angles.sin()


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rotary = Rotary()
        self.norm = nn.BatchNorm1d(6)
        self.last = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        cos, sin = self.rotary(x)
        turned = x * cos + x.flip(-1) * sin
        return self.last(self.norm(turned.mean(1))).squeeze(-1)


def test_rotary_positions_and_another_norm() -> None:
    generator = torch.Generator().manual_seed(1)
    batches = [(torch.randn(16, 5, 6, generator=generator), torch.randn(16, generator=generator)) for _ in range(12)]
    model = Positions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    twin = Twin(steadyrun.Task(model, optimizer, loss_fn, loader=batches), 8)
    own, found = twin.train(twin.factor("own"), 1), factors(twin)
    for name in ("no-rotary", "other-norm"):
        curve = twin.train(found[name], 1)
        assert not curve.raised
        assert curve.losses["held"][-1] != own.losses["held"][-1]


def test_a_backward_is_checked_in_float64_and_replaced() -> None:
    twin = twin_of(own_backward=True)
    (function,) = custom_functions(twin)
    assert function is Round
    wrong = checked(twin, function)
    assert not wrong.right
    assert "differs from numerical derivatives" in wrong.message
    x = torch.ones(3, requires_grad=True)
    with plain_backward(function):
        Round.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert custom_functions(twin_of()) == []


def test_a_trial_starts_from_the_checkpoint_of_an_incident(tmp_path: Path) -> None:
    from steadyrun import trial

    program = task({"lr": 1e-2})
    with steadyrun.record(tmp_path / "run", config={"lr": 1e-2, "seed": 1}) as run:
        run.watch(program.model, program.optimizer, loss_fn=program.loss_fn, capture={"every": 10})
        for index, batch in enumerate(program.loader or []):
            if index == 40:
                break
            assert program.train_step is not None
            run.step(program.train_step(program, batch), batch=batch)
        run.incident("to look at it")
    step = max(int(folder.name.partition("-")[2]) for folder in (tmp_path / "run" / "incidents").glob("step-*"))
    fresh = trial(task, run=tmp_path / "run", only=["rate*0.1"], steps=16)
    late = trial(task, run=tmp_path / "run", checkpoint=step, only=["rate*0.1"], steps=16)
    first = next(curve for curve in late.curves if curve["factor"] == "own")["losses"]["held"][0]
    assert first < 0.8 * next(curve for curve in fresh.curves if curve["factor"] == "own")["losses"]["held"][0]
    assert f"before step {step}" in late.start
