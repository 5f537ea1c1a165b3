"""Plots of characters: braille and ASCII, with what is not finite at the top."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyrun.panels.characters import axis, plot
from steadyrun.panels.panel import AxisScale, Line, Mark, Panel


def panel(*lines: list[float], log: bool = False, marks: tuple[Mark, ...] = ()) -> Panel:
    drawn = tuple(Line(str(n), np.arange(len(values)), np.array(values, float)) for n, values in enumerate(lines))
    return Panel(1, "loss", "?", "loss", AxisScale("loss", log=log), drawn, marks=marks)


def rows(*lines: list[float], width: int = 8, height: int = 2, log: bool = False, ascii_only: bool = True) -> list[str]:
    span = (0, max(len(values) for values in lines) - 1)
    return list(plot(panel(*lines, log=log), span, width, height, ascii_only=ascii_only).rows)


def test_a_rising_line() -> None:
    assert rows([0, 1, 2, 3], width=4) == ["  .'", ".'  "]
    assert rows([0, 1, 2, 3], width=2, height=1, ascii_only=False) == ["⡠⠊"]


def test_a_constant_line_lies_in_the_middle_of_a_log_scale() -> None:
    assert rows([5, 5, 5, 5], width=4, height=1, log=True) == ["...."]


def test_points_far_apart_are_joined() -> None:
    assert rows([0, 0], width=6, height=1) == ["......"]
    assert rows([0, 3], width=4) == ["  .'", ".'  "]


def test_many_points_in_a_column_are_a_bar() -> None:
    assert rows([0, 1] * 50, width=3) == [":::", ":::"]


def test_a_log_scale_bends() -> None:
    assert rows([1, 10, 100, 1000], width=4, log=True) == ["  .'", ".'  "]


def test_what_is_not_finite_is_marked_at_the_top() -> None:
    nan, inf = float("nan"), float("inf")
    assert rows([1, nan, 1, inf], width=4)[0][1::2] == "!!"
    assert rows([nan, nan], width=2) == ["!!", "  "]
    assert rows([-1, 1, 0, 1], width=4, log=True)[0][0] != "!"


def test_lines_have_owners_and_the_last_is_in_front() -> None:
    canvas = plot(panel([0, 0], [0, 0]), (0, 1), 2, 1)
    assert canvas.owners == ((1, 1),)
    assert plot(panel([]), (0, 0), 2, 1).owners == ((-1, -1),)


def test_the_axis_carries_marks_the_gravest_in_front() -> None:
    marks = (Mark(0, 0, "note", "C1.1", ""), Mark(9, 9, "fault", "D1.3", ""), Mark(9, 9, "incident", "resume", ""))
    assert axis(panel([1] * 10, marks=marks), (0, 9), 5) == "!───✗"
    assert axis(panel([1] * 10, marks=marks), (0, 9), 5, ascii_only=True) == "!---x"


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50),
    st.booleans(),
    st.booleans(),
    st.integers(1, 30),
    st.integers(1, 6),
)
def test_any_series_fits(values: list[float], log: bool, ascii_only: bool, width: int, height: int) -> None:
    canvas = plot(panel(values, log=log), (0, max(0, len(values) - 1)), width, height, ascii_only=ascii_only)
    assert len(canvas.rows) == height
    assert {len(row) for row in canvas.rows} == {width}
    assert not ascii_only or all(row.isascii() for row in canvas.rows)
    assert ("!" in canvas.rows[0]) == bool(np.any(~np.isfinite(values)))


@pytest.mark.parametrize("span", [(0, 0), (5, 5), (10, 20)])
def test_points_outside_of_the_span_stay_inside_of_the_plot(span: tuple[int, int]) -> None:
    assert len(plot(panel([1, 2, 3]), span, 4, 2).rows) == 2
