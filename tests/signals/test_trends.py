"""The slope against polyfit; the trend test's false alarms counted on series without a trend."""

import numpy as np
import pytest

from steadyrun.signals.curves import slope, trend


def test_slope_against_polyfit() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        x = np.sort(rng.uniform(0, 1000, 40))
        y = rng.normal(size=40)
        assert slope(x, y) == pytest.approx(np.polyfit(x, y, 1)[0], abs=1e-9)


def test_a_line_is_found_with_its_ends() -> None:
    x = np.arange(200.0)
    line = trend(x, 3 - 0.01 * x + np.random.default_rng(0).normal(0, 0.05, 200))
    assert line.slope == pytest.approx(-0.01, rel=0.05)
    assert line.t < -20
    assert line.start == pytest.approx(3, abs=0.05)
    assert line.end == pytest.approx(1.01, abs=0.05)


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_false_alarms_of_the_trend_test(memory: float) -> None:
    """Noise without a trend, also noise that remembers: |t| > 3.4 stays rare (1% in theory)."""
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(1000):
        noise = rng.normal(size=200)
        for step in range(1, 200):
            noise[step] += memory * noise[step - 1]
        alarms += abs(trend(np.arange(200.0), noise).t) > 3.4
    assert alarms <= (25 if memory == 0 else 60)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_too_short_for_a_trend(length: int) -> None:
    assert trend(np.arange(float(length)), np.ones(length)).t == 0


def test_a_flat_line_has_no_trend() -> None:
    assert trend(np.arange(50.0), np.full(50, 2.0)).t == 0
