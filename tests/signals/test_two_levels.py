"""Losses of easy and hard batches: their medians jump from part to part, and nothing has changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import steadyrun
from steadyrun.signals.progress import _between_ranks
from steadyrun.signals.swings import swings

RNG = np.random.default_rng(5)


def verdict_of(path: Path) -> str:
    target = path.with_name("run")
    steadyrun.import_log(path, target)
    return steadyrun.check(target).verdict


def two_levels(count: int) -> np.ndarray:
    return np.where(RNG.random(count) < 0.5, 0.1, 0.6) + RNG.normal(0, 0.03, count)


def test_a_loss_that_jumps_from_point_to_point_does_not_swing() -> None:
    assert swings(two_levels(1600), 0.2, 30).count < 4


def test_a_loss_that_stays_up_and_comes_back_swings() -> None:
    slow = 0.35 + 0.25 * np.sign(np.sin(np.arange(1600) / 25)) + RNG.normal(0, 0.03, 1600)
    assert swings(slow, 0.2, 30).count >= 4


def test_a_spike_does_not_swing() -> None:
    values = np.full(1600, 0.3)
    values[900::100] = 50.0
    assert swings(values, 0.2, 30).count == 0


def test_the_error_of_a_median_between_two_levels_is_large() -> None:
    normal, apart = RNG.normal(0, 1, (20, 80)), two_levels(1600).reshape(20, 80)
    assert 0.7 < _between_ranks(normal) / (1.25 / np.sqrt(80)) < 1.5
    spread = np.std(np.median(two_levels(80 * 200).reshape(200, 80), axis=1))
    assert _between_ranks(apart) > 0.3 * spread


def test_a_descent_among_two_levels_is_healthy(tmp_path: Path) -> None:
    count = 1600
    floor = np.maximum(0.1, 0.6 - np.arange(count) / 1500)
    losses = np.where(RNG.random(count) < 0.5, floor, 0.55) + RNG.normal(0, 0.02, count)
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {n} loss: {loss:.4f}\n" for n, loss in enumerate(losses)))
    assert verdict_of(path) == "healthy"


def test_a_smooth_l1_loss_that_is_never_finite_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"Epoch[0] Batch [{n}] Train-Acc=0.5{n % 7} Train-SmoothL1=nan\n" for n in range(20, 400, 20))
    )
    assert verdict_of(path) in ("suspect", "fault")
