"""Extents, gaps, spreads and sums of whole series."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from steadyrun.records import Series
from steadyrun.signals.declared_schedule import dry_run
from steadyrun.signals.overview import (
    Spread,
    elapsed,
    extent,
    gaps,
    mean_and_sigma,
    running_total,
    smoothed,
    summed,
    widest_start,
)

NAN = float("nan")


def series(values: list[float], steps: Any = None) -> Series:
    places = np.arange(len(values)) if steps is None else np.array(steps)
    return Series("a", places, np.array(values, float), np.zeros(len(values)))


def test_extent_is_of_the_finite_values() -> None:
    finite = extent(series([2.0, NAN, 8.0, 1.0, math.inf]))
    assert finite is not None
    assert (finite.first, finite.last, finite.low, finite.high, finite.high_step) == (2.0, 1.0, 1.0, 8.0, 2)
    assert (finite.finite, finite.not_finite, finite.growth) == (3, 2, 4.0)
    assert extent(series([NAN])) is None
    assert extent(series([])) is None


def test_gaps() -> None:
    steps = np.array([*range(100), *range(500, 600)])
    assert gaps(steps).tolist() == [99]
    assert gaps(np.arange(0, 10_000, 50)).tolist() == []
    assert gaps(np.array([0, 1, 2, 1000])).tolist() == []


def test_spread_compares_at_common_steps() -> None:
    spread = Spread()
    spread.add(series([1.0, 2.0, 4.0], [0, 10, 20]))
    assert spread.widest() is None
    spread.add(series([3.0, 0.0, 1.0], [0, 10, 20]))
    assert spread.steps.tolist() == [0, 20]
    assert spread.widest() == (20, 4.0)
    low, high = spread.within(4.0)
    assert low.tolist() == pytest.approx([math.sqrt(3) / 2, 1.0])
    assert high.tolist() == pytest.approx([math.sqrt(3) * 2, 4.0])


def test_sum_of_series() -> None:
    total = summed("t", [series([1.0, 2.0], [0, 1]), series([5.0, 7.0], [1, 2])])
    assert total is not None
    assert (total.steps.tolist(), total.values.tolist()) == ([1], [7.0])
    assert summed("t", []) is None
    assert summed("t", [series([1.0], [0]), series([1.0], [1])]) is None


def test_smoothing_leaves_out_what_is_not_finite() -> None:
    assert smoothed(series([4.0, NAN, 4.0]), 10).values.tolist() == [4.0, 4.0]


def test_widest_start_bounds_a_random_matrix() -> None:
    weights = [{"shape": [256, 128], "fan_in": 128}, {"shape": [8], "fan_in": None}, {"shape": "x", "fan_in": 3}]
    drawn = np.random.default_rng(0).normal(0, math.sqrt(2 / 128), (256, 128))
    bound = widest_start(weights)
    assert bound is not None
    assert bound == pytest.approx(float(np.linalg.norm(drawn, 2)), rel=0.05)
    assert widest_start([]) is None


def test_the_schedulers_dry_run() -> None:
    curve = dry_run({"expected_lr": {"groups": [[[0, 1.0], [10, 0.0]]]}})
    assert curve is not None
    assert curve(np.array([5.0])).tolist() == [0.5]
    assert dry_run({}) is None
    assert dry_run({"expected_lr": {"groups": ["x"]}}) is None


def test_the_mean_of_runs_covers_their_common_steps() -> None:
    long = (np.arange(0, 10), np.arange(10.0))
    sparse = (np.array([2, 4, 20]), np.array([4.0, 6.0, 22.0]))
    mean = mean_and_sigma([long, sparse])
    assert mean is not None
    assert mean.steps.tolist() == list(range(2, 10))
    assert mean.mean.tolist() == pytest.approx([step + 1.0 for step in range(2, 10)])
    assert mean.sigma.tolist() == pytest.approx([math.sqrt(2)] * 8)
    assert mean_and_sigma([long, (np.array([50, 60]), np.array([1.0, 2.0]))]) is None
    assert mean_and_sigma([long, (np.array([1]), np.array([1.0]))]) is None


def test_time_and_tokens_replace_steps() -> None:
    steps, values = np.arange(4), np.array([8.0, 8.0, 4.0, 8.0])
    counted = Series("tokens", steps, values, np.array([100.0, 101.0, 100.5, 103.0]))
    seconds, tokens = elapsed(counted), running_total(counted)
    assert seconds is not None
    assert tokens is not None
    assert seconds.tolist() == [0.0, 1.0, 1.0, 3.0], "a clock that goes back stands still"
    assert tokens.tolist() == [8.0, 16.0, 20.0, 28.0]
    assert elapsed(Series("loss", steps, values, np.zeros(4))) is None, "an imported log without times"
    assert running_total(Series("tokens", steps, values * math.nan, np.zeros(4))) is None
