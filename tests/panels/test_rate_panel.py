"""Panel 2 draws what the scheduler planned at the steps at which it was stepped, or nothing where that is not known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import steadyrun
from steadyrun.panels.board import board_of
from steadyrun.panels.panel import Line, Panel
from steadyrun.store.jsonio import dumps
from steadyrun.store.layout import MANIFEST

STEPS = 120
CLOSE = 1e-5  # the dry run is kept as knots, a ten-thousandth of the peak off at most


def train(
    path: Path, make: Callable[[Any], Any], every: int, *, after: bool = False, steps: int = STEPS, **how: Any
) -> Any:
    """A run whose scheduler is stepped every so many steps, before or after `run.step`."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = make(optimizer)
    if "resume" in how:
        optimizer.load_state_dict(how["resume"][0])
        scheduler.load_state_dict(how["resume"][1])
    with steadyrun.record(path) as run:
        run.watch(model, optimizer, scheduler=scheduler)
        for step in range(steps):
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if after:
                run.step(loss)
            if step % every == every - 1:
                scheduler.step(*([loss.detach()] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
                if "meddles" in how:
                    optimizer.param_groups[0]["lr"] = 0.07
            if not after:
                run.step(loss)
    return optimizer.state_dict(), getattr(scheduler, "state_dict", dict)()


def panel(path: Path) -> Panel:
    return board_of(path).panels[1]


def planned(path: Path) -> list[Line]:
    return [line for line in panel(path).lines if line.role == "declared"]


def used(path: Path) -> Line:
    return next(line for line in panel(path).lines if line.name == "recorded")


class Uncounted:
    """A scheduler of one's own, which says nowhere how often it was stepped."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.5


MAKERS: dict[str, Callable[[Any], Any]] = {
    "steps": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 6),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.5, 2), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 4)], [2]
    ),
}


@pytest.mark.parametrize(("every", "after"), [(1, False), (7, True), (20, False), (20, True)])
@pytest.mark.parametrize("maker", MAKERS)
def test_the_planned_curve_is_that_of_the_steps(maker: str, every: int, after: bool, tmp_path: Path) -> None:
    train(tmp_path, MAKERS[maker], every, after=after)
    [line] = planned(tmp_path)
    assert line.name == "planned by the scheduler"
    assert np.array_equal(line.steps, used(tmp_path).steps)
    assert line.values == pytest.approx(used(tmp_path).values, abs=CLOSE)
    assert len(np.unique(line.values)) > 1
    if panel(tmp_path).trouble == "none":
        assert panel(tmp_path).caption.endswith(", as planned by the scheduler.")


def test_a_rate_that_something_else_sets_is_not_the_planned_one(tmp_path: Path) -> None:
    """The line is the scheduler's and not a copy of what was recorded."""
    train(tmp_path, MAKERS["cosine"], 20, meddles=True)
    [line] = planned(tmp_path)
    assert set(used(tmp_path).values) == {0.1, 0.07}
    assert line.values[-1] == pytest.approx(0.05 * (1 + math.cos(math.pi * 5 / 6)), abs=CLOSE)


def test_nothing_is_drawn_where_the_curve_is_not_known(tmp_path: Path) -> None:
    train(tmp_path / "metric", lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1), 20)
    assert planned(tmp_path / "metric") == []
    train(tmp_path / "uncounted", Uncounted, 20)
    assert planned(tmp_path / "uncounted") == []


def test_a_resumed_run_is_drawn_where_the_plan_is_known(tmp_path: Path) -> None:
    """The dry run of the second attempt begins in the middle of the curve."""
    make = MAKERS["cosine"]
    state = train(tmp_path, make, 20, steps=60)
    train(tmp_path, make, 20, resume=state, steps=60)
    [line] = planned(tmp_path)
    kept = used(tmp_path)
    planned_too = np.isin(kept.steps, line.steps)
    assert line.steps[-1] == STEPS - 1
    assert line.steps[0] > 40
    assert line.values == pytest.approx(kept.values[planned_too], abs=CLOSE)


def test_a_run_recorded_before_the_beginning_was_kept(tmp_path: Path) -> None:
    train(tmp_path, MAKERS["steps"], 20)
    manifest = dict(steadyrun.open_run(tmp_path).manifest)
    del manifest["inferred"]["expected_lr"]["begun"]
    (tmp_path / MANIFEST).write_text(dumps(manifest))
    [line] = planned(tmp_path)
    assert line.values == pytest.approx(used(tmp_path).values)
