"""Numbers as messages print them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrun.text import apart, in_utc, normally, percent, shown


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.48123, "0.481"),
        (12345.6, "12,300"),
        (1484.0, "1,484"),
        (1.773e7, "1.77e7"),
        (3e-4, "3e-4"),
        (0.001234, "0.00123"),
        (999.96, "1,000"),
        (-0.5, "-0.5"),
        (0.0, "0"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_have_three_significant_digits(value: float, words: str) -> None:
    assert shown(value) == words


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_a_shown_number_is_within_half_a_percent(value: float) -> None:
    assert float(shown(value).replace(",", "")) == pytest.approx(value, rel=0.005)


@pytest.mark.parametrize(
    ("fraction", "words"),
    [(0.5, "50%"), (-0.031, "-3.1%"), (0.7214, "72.1%"), (12.0, "1,200%"), (0.0062, "0.62%"), (0.9996, "99.96%")],
)
def test_percentages_are_short_and_never_round_to_all(fraction: float, words: str) -> None:
    assert percent(fraction) == words


def test_numbers_that_differ_look_different() -> None:
    assert apart(2.303, 2.3031) == ("2.303", "2.3031")
    assert apart(4.228, 0.481) == ("4.23", "0.481")
    assert apart(1.0, 1.0) == ("1", "1")


@pytest.mark.parametrize(
    ("level", "sigma", "words"),
    [
        (0.481, 0.0338, "normally 0.48 ± 0.03"),
        (21.3, 4.2, "normally 21 ± 4"),
        (2.303, 0.0, "normally 2.3"),
        (12345.6, 310.0, "normally 12,300 ± 310"),
    ],
)
def test_the_usual_range_ends_at_the_digit_of_its_sigma(level: float, sigma: float, words: str) -> None:
    assert normally(level, sigma) == words


def test_a_time_that_no_calendar_has_is_left_out() -> None:
    assert in_utc(1_700_000_000.5) == "2023-11-14 22:13:20"
    assert in_utc(1e300) == in_utc(math.nan) == ""
