"""The expected learning-rate curve is the one the scheduler will give, and looking at it changes nothing."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as s

from steadyrun.probes.scheduler_dry_run import expected_rates, steps_taken

STEPS = 120

SCHEDULERS = {
    "lambda": lambda o: s.LambdaLR(o, [lambda t: min(1.0, (t + 1) / 10), lambda t: 0.5**t]),
    "cosine": lambda o: s.CosineAnnealingLR(o, STEPS, eta_min=1e-5),
    "step": lambda o: s.StepLR(o, 30),
    "one cycle": lambda o: s.OneCycleLR(o, max_lr=[0.1, 0.3], total_steps=STEPS),
    "restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 25),
    "sequential": lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 20), s.ExponentialLR(o, 0.97)], [20]),
    "chained": lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.5, 10), s.ExponentialLR(o, 0.99)]),
    "multi step": lambda o: s.MultiStepLR(o, [10, 50, 51]),
    "cyclic": lambda o: s.CyclicLR(o, 1e-4, 1e-2, step_size_up=15, cycle_momentum=True),
}


def two_groups() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 3)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.02}]
    return model, torch.optim.SGD(groups, momentum=0.9)


def interpolated(knots: Any, step: int) -> float:
    for (x0, y0), (x1, y1) in itertools.pairwise(knots):
        if x0 <= step <= x1:
            return y0 + (y1 - y0) * (step - x0) / (x1 - x0)
    return knots[-1][1]


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_the_dry_run_foretells_the_real_run(name: str) -> None:
    model, optimizer = two_groups()
    scheduler = SCHEDULERS[name](optimizer)
    before = copy.deepcopy({**optimizer.state_dict(), "scheduler": steps_taken(scheduler)})
    expected = expected_rates(scheduler, optimizer, model, STEPS)
    assert {**optimizer.state_dict(), "scheduler": steps_taken(scheduler)} == before
    assert expected.steps == STEPS
    largest = 0.0
    for step in range(STEPS):
        for group, knots in zip(optimizer.param_groups, expected.groups, strict=True):
            largest = max(largest, group["lr"])
            assert interpolated(knots, step) == pytest.approx(group["lr"], abs=2.1e-4 * max(largest, 0.3))
        optimizer.step()
        scheduler.step()


def test_a_straight_line_needs_two_knots() -> None:
    model, optimizer = two_groups()
    expected = expected_rates(s.LambdaLR(optimizer, lambda t: 1 + t), optimizer, model, 10_000)
    assert len(expected.groups[0]) == 2
    constant = expected_rates(s.LambdaLR(two_groups()[1], lambda _: 1.0), optimizer, model, 500)
    assert [len(group) for group in constant.groups] == [2, 2]


def test_a_schedule_that_follows_a_metric_is_unknown() -> None:
    model, optimizer = two_groups()
    expected = expected_rates(s.ReduceLROnPlateau(optimizer), optimizer, model, 100)
    assert (expected.source, expected.groups) == ("unknown", ())
    assert "metric" in expected.why


def test_a_scheduler_that_cannot_be_copied_is_unknown() -> None:
    model, optimizer = two_groups()

    class Odd(s.LRScheduler):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("one of a kind")

        def get_lr(self) -> list[float]:
            return [0.1, 0.1]

    assert "one of a kind" in expected_rates(Odd(optimizer), optimizer, model, 100).why


def test_the_models_weights_are_not_copied() -> None:
    """A scheduler may hold on to its model; the copy must not copy that."""
    model, optimizer = two_groups()
    scheduler = s.ConstantLR(optimizer)
    scheduler.model = model
    model.__deepcopy__ = lambda memo: pytest.fail("the model was copied")
    assert expected_rates(scheduler, optimizer, model, 10).steps == 10
