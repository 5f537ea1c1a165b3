"""Answers are bounded, harmless and in a fixed order, whatever a run holds."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE

from steadyrun.agents.bounded_json import MOST, dumps, figure, fitted, harmless, page, short
from steadyrun.agents.run_tools import few, summary

NOT_A_NUMBER = float("nan")


def test_an_answer_is_one_line_of_ascii_and_says_its_schema() -> None:
    told = dumps({"b": HOSTILE, "a": [NOT_A_NUMBER, math.inf]})
    assert told.isascii()
    assert told.isprintable()
    assert list(json.loads(told)) == ["schema", "b", "a"]
    assert json.loads(told)["a"] == ["nan", "inf"]


def test_control_characters_are_spelled_out() -> None:
    safe = harmless({HOSTILE: [HOSTILE]})
    for text in (next(iter(safe)), safe[next(iter(safe))][0]):
        assert text.isprintable()
        assert "\\x1b[31m" in text
        assert "\\u202e" in text


def test_what_is_cut_says_so() -> None:
    assert short("x" * 700) == "x" * 600 + "... (100 more characters)"
    assert harmless(list(range(50)))[-2:] == [39, "(10 more)"]
    assert harmless({str(k): k for k in range(50)})["..."] == "(10 more)"
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert json.dumps(harmless(deep)).count("[") == 6


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1 + 0.2, 0.3),
        (3.0, 3),
        (float(2**52 + 1), 2**52 + 1),  # a batch hash stays whole
        (1e300, 1e300),
        (1e-45, 1e-45),
        (NOT_A_NUMBER, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers(value: float, shown: object) -> None:
    assert figure(value) == shown


def test_lists_are_cut_in_the_order_given_until_it_fits() -> None:
    answer = {"keep": "k", "first": ["x" * 100] * 300, "second": ["y" * 100] * 100, "cut": {"first": 7}}
    found = fitted(answer, ("first", "second"))
    assert len(dumps(found)) <= MOST
    assert len(found["second"]) == 100
    assert len(found["first"]) + found["cut"]["first"] - 7 == 300
    assert len(dumps(found | {"first": [*found["first"], "x" * 100]})) > MOST - 100
    assert list(found) == list(answer)
    assert fitted({"a": [1], "cut": {}}, ("a",)) == {"a": [1], "cut": {}}


@given(st.lists(st.integers(1, 4000), max_size=60))
def test_pages_lead_through_everything(lengths: list[int]) -> None:
    items, offset, seen = ["z" * length for length in lengths], 0, []
    for _ in range(len(items) + 1):
        found = page(items[offset:], offset, len(items), lambda shown: {"items": shown}, most=5000)
        assert len(dumps(found)) <= 5000
        seen += found["items"]
        if found["next_offset"] is None:
            break
        offset = found["next_offset"]
    assert seen == items


@given(
    st.lists(st.floats(width=32), max_size=400),
    st.integers(10, 60),
)
def test_a_thinned_series_keeps_its_extremes_and_its_bound(given_values: list[float], most: int) -> None:
    values = np.array(given_values, float)
    kept = few(values, most)
    assert len(kept) <= most
    assert sorted(set(kept.tolist())) == kept.tolist()
    finite = values[np.isfinite(values)]
    if len(finite):
        assert values[kept][np.isfinite(values[kept])].max() == finite.max()
        assert values[kept][np.isfinite(values[kept])].min() == finite.min()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        assert bad[0] in kept
    if len(values):
        assert {0, len(values) - 1} <= set(kept.tolist())


def test_a_single_spike_among_many_stays() -> None:
    values = np.zeros(100_000)
    values[54_321] = 9.0
    assert 54_321 in few(values, 50)


def test_the_summary_tells_where() -> None:
    steps, values = np.array([10, 20, 30, 40]), np.array([2.0, 1.0, NOT_A_NUMBER, 9.0])
    assert summary(steps, values) == {
        "first": [10, 2],
        "last": [40, 9],
        "min": [20, 1],
        "max": [40, 9],
        "mean": 4,
        "median": 2,
        "not_finite": 1,
        "first_not_finite": 30,
    }
    assert summary(steps[:0], values[:0]) is None
    only_bad = summary(steps[2:3], values[2:3])
    assert only_bad is not None
    assert (only_bad["min"], only_bad["not_finite"]) == (None, 1)
