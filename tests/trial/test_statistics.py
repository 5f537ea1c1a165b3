"""Intervals of effects, numbers of seeds, steps to a level: against simulations and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrun.trial.statistics import Effect, effect, seeds_for, seeds_needed, spread, steps_to
from steadyrun.trial.twin import Curve


def test_an_interval_covers_the_true_effect_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(2_000):
        seeds = random.normal(1.0, 0.1, 3)  # what a seed does to both twins
        own, changed = seeds + random.normal(0, 0.05, 3), seeds - 0.2 + random.normal(0, 0.05, 3)
        found = effect(own.tolist(), changed.tolist(), spread(own.tolist()), 1.0)
        covered += found.low <= 0.2 <= found.high
    assert covered / 2_000 > 0.93


def test_without_an_effect_a_change_is_seldom_sure_to_help() -> None:
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(2_000):
        own, changed = random.normal(1.0, 0.1, 3), random.normal(1.0, 0.1, 3)
        wrong += effect(own.tolist(), changed.tolist(), spread(own.tolist()), 1.0).low > 0
    assert wrong / 2_000 < 0.05


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6),
    st.floats(-1e3, 1e3),
    st.floats(0, 1e3),
    st.floats(1e-3, 1e3),
)
def test_the_mean_lies_inside_of_the_interval(own: list[float], shift: float, deviation: float, scale: float) -> None:
    found = effect(own, [end - shift for end in own], deviation, scale)
    assert found.low <= found.mean + 1e-9 * abs(found.mean)
    assert found.high >= found.mean - 1e-9 * abs(found.mean)
    assert found.seeds == len(own)


def test_a_twin_that_does_not_end_is_infinitely_worse() -> None:
    found = effect([1.0, 1.0], [0.5, math.inf], 0.1, 1.0)
    assert found.mean == -math.inf
    assert not found.low > 0


def test_smaller_effects_need_more_seeds() -> None:
    small, large = Effect(0.01, -0.2, 0.22, 3), Effect(0.1, -0.11, 0.31, 3)
    needed, fewer = seeds_needed(small), seeds_needed(large)
    assert needed is not None
    assert fewer is not None
    assert needed > fewer >= 3
    assert seeds_needed(Effect(0.0, -1, 1, 3)) is None
    assert seeds_for(0.1, 0.1) == 16
    assert seeds_for(0.1, 0.05) == 63  # half the difference, four times the seeds
    assert seeds_for(math.nan, 1.0) is None


@pytest.mark.parametrize(("level", "steps"), [(1.0, 0.0), (0.75, 5.0), (0.5, 10.0), (0.35, 25.0), (0.1, math.inf)])
def test_steps_to_a_level_lie_on_the_line_between_marks(level: float, steps: float) -> None:
    curve = Curve("own", 1, 30, [0, 10, 20, 30], {"held": [1.0, 0.5, 0.4, 0.3]})
    assert steps_to(curve, "held", level) == pytest.approx(steps)
