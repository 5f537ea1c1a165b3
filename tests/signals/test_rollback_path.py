"""The path of a run with rollbacks, against a simulation that moves step by step."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steadyrun.records import Event
from steadyrun.signals.rollbacks import Path
from steadyrun.signals.run_signals import Points


def rollback(seam: int, to: int) -> Event:
    return Event("rollback", seam, float(seam), 0, {"to_step": to})


def simulated(last: int, events: list[Event]) -> dict[int, int]:
    """Position of every step that is on the path in the end."""
    path: dict[int, int] = {}
    position = 0
    seams = {event.step: event.fields["to_step"] for event in events}
    for step in range(last):
        if step in seams:
            to = seams[step]
            position = path[to]
            path = {earlier: at for earlier, at in path.items() if earlier < to}
        path[step] = position
        position += 1
    return path


@given(st.data())
def test_it_is_what_a_simulation_finds(data: st.DataObject) -> None:
    events: list[Event] = []
    for seam in sorted(data.draw(st.sets(st.integers(1, 60), max_size=5))):
        possible = sorted(simulated(seam, events))
        events.append(rollback(seam, data.draw(st.sampled_from(possible))))
    expected = simulated(80, events)
    along = Path(events).along(Points("lr", np.arange(80.0), np.arange(80.0)))
    assert dict(zip(along.values.astype(int).tolist(), along.steps.astype(int).tolist(), strict=True)) == expected


def test_a_resume_replaces_what_came_after_it() -> None:
    resume = Event("resume", 30, 50.0, 0, {})
    path = Path([rollback(20, 10), rollback(40, 25), resume])
    points = path.along(Points("lr", np.arange(50.0), np.arange(50.0)))
    assert points.values.tolist() == [*range(10), *range(20, 50)]
    assert points.steps.tolist() == list(range(40))
    assert path.crosses(19, 20)
    assert not path.crosses(39, 40)


def test_damaged_events_are_passed_over() -> None:
    points = Points("lr", np.arange(5.0), np.arange(5.0))
    for to in ("3", None, -1, True):
        assert Path([Event("rollback", 4, 0.0, 0, {"to_step": to})]).along(points) is points
