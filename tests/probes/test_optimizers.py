"""Learning rates as used, step counts, moments; optimizers that are rebuilt or not watched."""

import math
from pathlib import Path

import pytest
import torch
from small_programs import batch_of, loss_of, mlp, values
from torch import nn

import steadyrun


def run_steps(run, model, optimizer, steps, scheduler=None, start=0):
    used = []
    for step in range(start, start + steps):
        loss = loss_of(model, batch_of(step))
        loss.backward()
        used.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        optimizer.zero_grad()
        run.step(loss)
    return used


def test_the_recorded_rate_is_the_one_used(tmp_path: Path) -> None:
    model = mlp()
    groups = [
        {"params": model[0].parameters(), "lr": 0.5},
        {"params": [*model[2].parameters(), *model[4].parameters()]},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        used = run_steps(run, model, optimizer, 6, scheduler)
    assert values(tmp_path, "lr/0") == [rates[0] for rates in used]
    assert values(tmp_path, "lr/1") == [rates[1] for rates in used]
    assert values(tmp_path, "scheduler_steps") == [1, 2, 3, 4, 5, 6]


def test_moments_against_the_obvious_sum(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    truth: dict[str, list[float]] = {"exp_avg": [], "exp_avg_sq": []}
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(4):
            run_steps(run, model, optimizer, 1, start=step)
            for key, kept in truth.items():
                total = sum(float(state[key].double().pow(2).sum()) for state in optimizer.state.values())
                kept.append(math.sqrt(total))
    assert values(tmp_path, "moment1_norm/0") == pytest.approx(truth["exp_avg"], rel=1e-5)
    assert values(tmp_path, "moment2_norm/0") == pytest.approx(truth["exp_avg_sq"], rel=1e-5)
    assert values(tmp_path, "step_count/0") == [1, 2, 3, 4]


def test_a_rebuilt_optimizer_is_seen_and_followed(tmp_path: Path) -> None:
    model = mlp()
    with steadyrun.record(tmp_path, every={"moments": 1}) as run:
        run.watch(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
        for step in range(5):
            run_steps(run, model, torch.optim.AdamW(model.parameters(), lr=0.01 * (step + 1)), 1, start=step)
    view = steadyrun.open_run(tmp_path)
    assert len(view.events("optimizer-replaced")) == 1
    assert values(tmp_path, "lr/0") == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.05])
    assert values(tmp_path, "step_count/0") == [1] * 5


def test_watch_again_after_rebuilding_is_no_surprise(tmp_path: Path) -> None:
    model = mlp()
    with steadyrun.record(tmp_path) as run:
        for _ in range(2):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            run.watch(model, optimizer)
            run_steps(run, model, optimizer, 3)
    view = steadyrun.open_run(tmp_path)
    assert view.events("optimizer-replaced") == []
    assert len(view.series("grad_norm")) == 6


class Parted(torch.optim.Optimizer):
    """An optimizer that leaves a part of its parameters to another, and the rest to other ranks."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.optim = torch.optim.SGD(self.param_groups[0]["params"][:2], lr=lr)

    def step(self, closure=None):
        self.optim.step(closure)


def test_an_optimizer_that_steps_a_part_does_not_replace_the_whole(tmp_path: Path) -> None:
    model = mlp()
    optimizer = Parted(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        run_steps(run, model, optimizer, 3)
    view = steadyrun.open_run(tmp_path)
    assert view.events("optimizer-replaced") == []
    assert values(tmp_path, "optimizer_steps") == [1, 1, 1]
    asked = {each.question.code: each.answer for each in steadyrun.check(tmp_path, everything=True).walk.path}
    assert asked["A4.1"].outcome == "pass"


def test_another_models_optimizer_is_none_of_our_business(tmp_path: Path) -> None:
    model, other = mlp(), mlp()
    optimizer, others = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other))
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        loss_of(other, batch_of(0)).backward()
        others.step()
        run_steps(run, model, optimizer, 2)
    assert values(tmp_path, "optimizer_steps") == [1, 1]
    assert steadyrun.open_run(tmp_path).events("optimizer-replaced") == []


def test_two_optimizers(tmp_path: Path) -> None:
    model = mlp()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.AdamW([*model[2].parameters(), *model[4].parameters()], lr=0.2)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, [first, second])
        for step in range(3):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            first.step()
            second.step()
            first.zero_grad()
            second.zero_grad()
            run.step(loss)
    assert values(tmp_path, "lr/0") == pytest.approx([0.1] * 3)
    assert values(tmp_path, "lr/1") == pytest.approx([0.2] * 3)
    assert values(tmp_path, "optimizer_steps") == [2] * 3


class HomeMade:
    """An optimizer that torch does not know: no hooks."""

    def __init__(self, model: nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters()), "lr": 0.1}]
        self.state: dict[object, object] = {}

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data -= 0.1 * parameter.grad

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None


def test_parameters_that_move_without_a_watched_step_are_noticed(tmp_path: Path) -> None:
    model = mlp()
    with steadyrun.record(tmp_path) as run:
        optimizer = HomeMade(model)
        run.watch(model, optimizer)
        run_steps(run, model, optimizer, 4)
    view = steadyrun.open_run(tmp_path)
    assert len(view.events("moved-without-optimizer")) == 1
    assert len(view.series("grad_norm")) == 4


def test_a_skipped_step_is_no_silent_move(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadyrun.record(tmp_path) as run:
        run.watch(model, optimizer)
        for step in range(8):
            loss = loss_of(model, batch_of(step))
            loss.backward()
            if step % 3 == 0:
                optimizer.step()
            run.step(loss)
    assert steadyrun.open_run(tmp_path).events("moved-without-optimizer") == []
    assert values(tmp_path, "skipped") == [0, 1, 1, 0, 1, 1, 0, 1]


def test_update_ratio_against_the_obvious_quotient(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 600), nn.ReLU(), nn.Linear(600, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    truth = []
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(3):
            before = [p.detach().clone() for p in model[0].parameters()]
            run_steps(run, model, optimizer, 1, start=step)
            after = [p.detach() for p in model[0].parameters()]
            moved = math.sqrt(sum(float((a - b).pow(2).sum()) for a, b in zip(after, before, strict=True)))
            truth.append(moved / math.sqrt(sum(float(a.pow(2).sum()) for a in after)))
    assert values(tmp_path, "update_ratio/0") == pytest.approx(truth, rel=1e-4)


def test_a_part_that_waits_for_its_turn_has_no_update(tmp_path: Path) -> None:
    """A generator that steps every third time has not stopped in between; a part without an optimizer has."""
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 6), nn.Linear(6, 3))
    often, seldom = (torch.optim.SGD(model[index].parameters(), lr=0.1) for index in (0, 1))
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, [often, seldom])
        for step in range(7):
            loss = loss_of(model, batch_of(step))
            model.zero_grad()
            loss.backward()
            often.step()
            if step % 3 == 0:
                seldom.step()
            run.step(loss)
    view = steadyrun.open_run(tmp_path)
    assert view.series("update_ratio/0").steps.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert view.series("update_ratio/1").steps.tolist() == [0, 3, 6]
    assert min(values(tmp_path, "update_ratio/1")) > 0
    assert set(values(tmp_path, "update_ratio/2")) == {0.0}


@pytest.mark.parametrize(("climb", "empty"), [(0.0, 2.0), (0.01, 1.0)])
def test_gradients_that_moved_the_weights_were_not_erased(tmp_path: Path, climb: float, empty: float) -> None:
    """Two backward passes with cleared gradients between them: a lost micro-batch, or sharpness-aware training."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        for step in range(5):
            for half in range(2):
                optimizer.zero_grad()
                loss = loss_of(model, batch_of(step))
                loss.backward()
                if climb and not half:
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter.add_(climb * parameter.grad)
            optimizer.step()
            run.step(loss)
    assert set(values(tmp_path, "empty_starts")) == {empty}


def test_a_large_tensor_is_judged_by_a_part(tmp_path: Path) -> None:
    model = nn.Linear(512, 512, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    before = model.weight.detach().clone()
    with steadyrun.record(tmp_path, every=1) as run:
        run.watch(model, optimizer)
        loss = model(torch.randn(16, 512)).pow(2).mean()
        loss.backward()
        optimizer.step()
        run.step(loss)
    truth = float((model.weight.detach() - before).norm() / model.weight.detach().norm())
    assert values(tmp_path, "update_ratio/weight") == pytest.approx([truth], rel=0.02)
