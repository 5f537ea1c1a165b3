"""Every statistic against its slow, obvious twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from steadyrun.signals.curves import ema, robust_scale, rolling_deviation, rolling_mean, thinned

SERIES = hnp.arrays(np.float64, st.integers(0, 300), elements=st.floats(-1e6, 1e6))


def slow_ema(values: list[float], span: int) -> list[float]:
    decay = 1 - 2 / (span + 1)
    averages = []
    for end in range(1, len(values) + 1):
        weights = [decay ** (end - 1 - i) for i in range(end)]
        averages.append(sum(w * v for w, v in zip(weights, values[:end], strict=True)) / sum(weights))
    return averages


@given(SERIES, st.integers(1, 60))
def test_ema(values: np.ndarray, span: int) -> None:
    scale = max(1.0, float(np.max(np.abs(values), initial=0)))
    assert ema(values, span) == pytest.approx(slow_ema(values.tolist(), span), abs=1e-8 * scale)


@given(SERIES, st.integers(1, 60))
def test_rolling_mean_and_deviation(values: np.ndarray, window: int) -> None:
    scale = max(1.0, float(np.max(np.abs(values), initial=0)))
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    assert rolling_mean(values, window) == pytest.approx([p.mean() for p in parts], abs=1e-9 * scale)
    assert rolling_deviation(values, window) == pytest.approx([p.std() for p in parts], abs=1e-5 * scale)


def test_a_large_level_does_not_drown_the_deviation() -> None:
    values = 1e9 + np.tile([0.0, 1.0], 500)
    assert rolling_deviation(values, 100)[-1] == pytest.approx(0.5, rel=1e-6)


def test_a_long_series_keeps_its_digits() -> None:
    values = np.sin(np.arange(100_000) / 50) + 3
    assert ema(values, 50)[-200:] == pytest.approx(slow_ema(values[-3000:].tolist(), 50)[-200:], rel=1e-9)


def test_robust_scale_ignores_wild_values() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(5, 2, 10_000), [1e12] * 50])
    scale = robust_scale(values)
    assert scale.middle == pytest.approx(5, abs=0.1)
    assert scale.spread == pytest.approx(2, rel=0.05)
    assert np.isnan(robust_scale(np.array([])).middle)


@given(st.integers(1, 5000), st.integers(2, 200))
def test_thinned_keeps_the_ends(length: int, most: int) -> None:
    places = thinned(length, most)
    assert places[0] == 0
    assert places[-1] == length - 1
    assert len(places) <= most
