"""When the monitor looks, on a clock made by hand."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from steadyrun.monitor.monitor import SHARE, LookPace


def looks(step_time: float, look_time: float, steps: int, growth: float = 0.0) -> list[tuple[float, int]]:
    """The times and turns at which a run with steps of this length is looked at."""
    now, times_and_turns = 100.0, []
    pace = LookPace(now, 0)
    for turn in range(1, steps + 1):
        now += step_time
        if pace.due(now, turn):
            began = now
            now += look_time + growth * turn
            pace.looked(began, now, turn)
            times_and_turns.append((now - 100.0, turn))
    return times_and_turns


def test_it_looks_a_few_times_at_once() -> None:
    assert [turn for _, turn in looks(0.005, 0.02, 400)] == [50, 100, 200, 400]


def test_it_goes_on_looking() -> None:
    turns = [turn for _, turn in looks(0.1, 0.05, 20_000)]
    assert len(turns) > 30
    assert max(b - a for a, b in pairwise(turns)) <= 500


@given(
    st.floats(1e-4, 10.0),
    st.floats(1e-3, 1.0),
    st.floats(0.0, 1e-5),
    st.integers(100, 20_000),
)
def test_looking_never_takes_more_than_its_share(step_time: float, look_time: float, growth: float, steps: int) -> None:
    times_and_turns = looks(step_time, look_time, steps, growth)
    spent = 0.0
    for when, turn in times_and_turns:
        took = look_time + growth * turn
        # Its share of the time so far, a tenth of a second, and what a look may be longer than the one before it.
        assert spent <= SHARE * when + 0.1 + 1e-9
        spent += took


def test_a_resumed_run_begins_anew() -> None:
    pace = LookPace(0.0, 7_000)
    assert not pace.due(1.0, 7_049)
    assert pace.due(1.0, 7_050)
    pace.looked(1.0, 1.01, 7_050)
    assert not pace.due(9.0, 7_099)
    assert pace.due(9.0, 7_100)
