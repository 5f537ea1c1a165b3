"""Declared plans, and how a recorded curve differs from one."""

import math

import numpy as np
import pytest

from steadyrun.signals.declared_schedule import (
    SchedulePlan,
    agreement,
    declared_plan,
    horizon_factor,
    knot_curve,
    largest_jump,
    time_factor,
)

PLAN = SchedulePlan("cosine", 1.0, 0.1, 100, 1000)
STEPS = np.arange(1000.0)


def slow_rate(step: int) -> float:
    if step < 100:
        return (step + 1) / 100
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - 100) / 900))


def test_the_plan_against_the_formula() -> None:
    assert PLAN.rate(STEPS) == pytest.approx([slow_rate(step) for step in range(1000)])


@pytest.mark.parametrize("schedule", ["cosine", "Cosine", "cosine_with_warmup", "warmup+cosine", "warmup-cosine"])
def test_spellings(schedule: str) -> None:
    config = {"schedule": schedule, "lr_max": 1.0, "lr_min": 0.1, "warmup_steps": 100, "total_steps": 1000}
    assert declared_plan(config) == PLAN


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "CosineAnnealingLR"},
        {"schedule": None},
        {"lr_max": None},
        {"lr_max": "3e-4"},
        {"lr_max": True},
        {"lr_max": math.nan},
        {"lr_max": -1},
        {"total_steps": 0},
        {"warmup_steps": 2000},
        {"lr_min": 2.0},
        {"lr_min": None},
    ],
)
def test_what_is_no_plan(change: dict[str, object]) -> None:
    config = {"schedule": "cosine", "lr_max": 1.0, "lr_min": 0.1, "warmup_steps": 100, "total_steps": 1000, **change}
    assert declared_plan(config) is None


def test_a_constant_needs_no_length() -> None:
    plan = declared_plan({"schedule": "constant", "lr_max": 0.5})
    assert plan is not None
    assert plan.rate(np.array([0.0, 1e9])).tolist() == [0.5, 0.5]
    assert not plan.decays


@pytest.mark.parametrize("factor", [2, 7, 1 / 3, 1 / 50])
def test_a_curve_run_at_another_speed_is_recognised(factor: float) -> None:
    counts = np.floor(STEPS * factor + 1e-9)
    fitted, distance = time_factor(STEPS, PLAN.rate(counts), PLAN.rate, 1.0)
    assert fitted == pytest.approx(factor)
    assert distance < 0.01


@pytest.mark.parametrize("factor", [0.5, 0.8, 2.0, 10.0])
def test_another_horizon_is_recognised(factor: float) -> None:
    other = SchedulePlan("cosine", 1.0, 0.1, 100, int(1000 * factor))
    fitted, distance = horizon_factor(STEPS, other.rate(STEPS), PLAN)
    assert fitted == pytest.approx(factor, rel=0.08)
    assert distance < 0.02


def test_agreement_allows_other_spellings_of_the_same_curve() -> None:
    late = np.where(STEPS < 100, STEPS / 100, PLAN.rate(STEPS))
    assert agreement(STEPS, late, PLAN.rate, 1.0, 0.05) == 1.0
    assert agreement(STEPS, np.full(1000, 1.0), PLAN.rate, 1.0, 0.05) < 0.3


def test_the_largest_jump_is_not_one_that_was_meant() -> None:
    meant = np.where(STEPS < 500, 1.0, 0.1)
    assert largest_jump(STEPS, np.roll(meant, 2)[2:], meant[2:], 1.0, 3) is not None
    shifted = largest_jump(STEPS, np.where(STEPS < 502, 1.0, 0.1), meant, 1.0, 3)
    assert shifted is not None
    assert shifted.size == 0
    jump = largest_jump(STEPS, np.where(STEPS < 300, 1.0, 0.5), meant, 1.0, 3)
    assert jump is not None
    assert (jump.step, jump.size) == (300, 0.5)


def test_knots() -> None:
    curve = knot_curve([[0, 0.0], [10, 1.0], ["x", 2], [20]])
    assert curve is not None
    assert curve(np.array([5.0, 30.0])).tolist() == [0.5, 1.0]
    assert knot_curve([]) is None
