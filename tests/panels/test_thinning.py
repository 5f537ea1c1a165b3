"""Thinned series look like the whole ones: extremes, ends and what is not finite are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrun.panels.thinning import MOST, places

value = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([0.0, float("nan"), float("inf"), float("-inf")]),
)


@given(st.lists(value, min_size=1, max_size=400), st.integers(10, 60))
def test_extremes_ends_and_non_finite_points_are_kept(values: list[float], most: int) -> None:
    series = np.array(values)
    kept = places(series, most)
    assert np.all(np.diff(kept) > 0)
    assert {0, len(series) - 1} <= set(kept.tolist())
    bad = np.flatnonzero(~np.isfinite(series))
    assert set(bad.tolist()) <= set(kept.tolist())
    assert len(kept) <= most + 2 + len(bad)
    good = series[np.isfinite(series)]
    if len(good):
        chosen = series[kept]
        chosen = chosen[np.isfinite(chosen)]
        assert (chosen.min(), chosen.max()) == (good.min(), good.max())


def test_a_short_series_is_whole() -> None:
    assert places(np.arange(5.0)).tolist() == [0, 1, 2, 3, 4]
    assert places(np.empty(0)).tolist() == []


def test_a_single_spike_in_a_million_survives() -> None:
    series = np.random.default_rng(0).standard_normal(1_000_000)
    series[123_457] = 50.0
    kept = places(series)
    assert 123_457 in kept
    assert len(kept) <= MOST + 2


@pytest.mark.parametrize("stretch", [(300_000, 1_000_000), (10, 500_000)])
def test_of_many_non_finite_points_the_ends_are_kept(stretch: tuple[int, int]) -> None:
    series = np.ones(1_000_000)
    series[slice(*stretch)] = np.nan
    series[5] = np.inf
    kept = places(series)
    assert {5, stretch[0], stretch[1] - 1} <= set(kept.tolist())
    assert len(kept) <= MOST + 2 + 400
