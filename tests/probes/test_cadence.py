"""How often probes measure: the step that is due next, and nothing in between."""

from __future__ import annotations

import pytest

from steadyrun.probes.cadence import DEFAULTS, Cadence


@pytest.mark.parametrize("parts", [0, 1, 3, 40])
@pytest.mark.parametrize("first", [0, 7, 1234])
@pytest.mark.parametrize("every", [dict(DEFAULTS), dict.fromkeys(DEFAULTS, 0), {**DEFAULTS, "spectral": 7, "modes": 0}])
def test_nothing_is_due_before_the_next_sample(every: dict[str, int], first: int, parts: int) -> None:
    cadence = Cadence(every, first)
    for step in range(first, first + 250):
        coming = cadence.next_sample(step, parts)
        for quiet in range(step + 1, min(coming, step + 250)):
            assert not cadence.due(quiet)
            assert not cadence.parts("spectral", quiet, parts)


def test_the_next_sample_of_the_defaults_is_near() -> None:
    cadence = Cadence(dict(DEFAULTS))
    assert cadence.next_sample(0, 0) == 1
    assert cadence.next_sample(19, 1) == 50
    assert cadence.next_sample(50, 4) == 75
