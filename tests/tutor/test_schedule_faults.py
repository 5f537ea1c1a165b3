"""Faults of the learning rate: the curve that the optimizer used, against the declared one."""

import pytest

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.faults import load_recipe
from steadyrun.tutor.recipe import lr_factor
from steadyrun.tutor.train import train

STEPS, WARMUP = 60, 12
TOP, FLOOR = 3e-4, 3e-5


def used(fault: str, steps: int = STEPS) -> list[float]:
    rates: list[float] = []
    train(load_recipe(fault, steps=steps), on_step=lambda step, loss, lr, norm: rates.append(lr))
    return rates


def declared(steps: int) -> list[float]:
    config = TutorConfig(steps=STEPS, warmup_steps=WARMUP)
    return [TOP * lr_factor(step, config) for step in range(steps)]


def test_healthy_follows_the_declared_curve() -> None:
    assert used("healthy") == pytest.approx(declared(STEPS))


def test_no_warmup_starts_at_the_top() -> None:
    rates = used("no-warmup")
    assert rates[0] == pytest.approx(TOP)
    assert rates[WARMUP - 1] == pytest.approx(TOP, rel=0.1)
    assert used("healthy")[0] == pytest.approx(TOP / WARMUP)


@pytest.mark.parametrize("fault", ["scheduler-never-stepped", "rebuilt-optimizer"])
def test_the_rate_stays_at_the_start_of_the_warmup(fault: str) -> None:
    assert used(fault) == pytest.approx([TOP / WARMUP] * STEPS)


def test_zero_lr() -> None:
    assert used("zero-lr") == [0.0] * STEPS


def test_step_decay_has_four_stairs() -> None:
    rates = used("step-decay")
    assert rates[:WARMUP] == pytest.approx(declared(WARMUP))
    assert sorted(set(rates[WARMUP:]), reverse=True) == pytest.approx([TOP, TOP / 2, TOP / 4, TOP / 8])


def test_warmup_off_by_one_is_at_zero_when_it_should_be_over() -> None:
    rates = used("warmup-off-by-one")
    assert rates[:2] == [0, 0]
    assert rates[2] == pytest.approx(TOP, rel=1e-3)


def test_a_slow_warmup_is_a_quarter_of_the_way_at_its_end() -> None:
    rates = used("slow-warmup")
    assert rates[WARMUP] == pytest.approx(TOP / 4)
    assert all(rate <= meant for rate, meant in zip(rates, declared(STEPS), strict=True))
    assert rates[4 * WARMUP :] == pytest.approx(declared(STEPS)[4 * WARMUP :])


def test_short_horizon_is_at_the_floor_by_half_time() -> None:
    rates = used("short-horizon")
    assert rates[: WARMUP + 1] == pytest.approx(declared(WARMUP + 1))
    assert rates[STEPS // 2 :] == pytest.approx([FLOOR] * (STEPS // 2))


def test_long_horizon_has_hardly_come_down() -> None:
    rates = used("long-horizon")
    assert rates[: WARMUP + 1] == pytest.approx(declared(WARMUP + 1))
    assert min(rates[WARMUP:]) > 0.95 * TOP


def test_scheduler_twice_runs_at_double_speed() -> None:
    assert used("scheduler-twice") == pytest.approx(declared(2 * STEPS)[::2])


def test_scheduler_per_epoch_moves_every_thirty_steps() -> None:
    assert used("scheduler-per-epoch") == pytest.approx([rate for rate in declared(2) for _ in range(30)])


def test_lr_jump_is_one_step_at_half_time() -> None:
    rates, meant = used("lr-jump"), declared(STEPS)
    assert rates[STEPS // 2] == pytest.approx(50 * TOP)
    del rates[STEPS // 2], meant[STEPS // 2]
    assert rates == pytest.approx(meant)


def test_inverted_cosine_climbs_from_the_floor_to_the_top() -> None:
    rates = used("inverted-cosine")
    assert rates[WARMUP - 1] == pytest.approx(0.04)
    assert rates[WARMUP] == pytest.approx(0.004)
    assert rates[WARMUP:] == sorted(rates[WARMUP:])
    assert rates[-1] == pytest.approx(0.04, rel=0.01)


@pytest.mark.parametrize(
    "fault",
    [
        "short-horizon",
        "long-horizon",
        "warmup-off-by-one",
        "slow-warmup",
        "step-decay",
        "no-warmup",
        "lr-jump",
        "inverted-cosine",
    ],
)
def test_the_shortest_run_works_too(fault: str) -> None:
    assert len(used(fault, steps=1)) == 1
