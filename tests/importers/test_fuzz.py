"""Some hundred mutated logs in every run of the tests; `fuzz.py` takes as many as one has time for."""

from __future__ import annotations

import random

import pytest
from fuzz import fuzz, mutated
from imported import looked

from steadyrun.errors import LogError


def test_mutated_logs_are_read_or_refused() -> None:
    assert fuzz(300, seed=1)[1] == {}


@pytest.mark.slow
def test_very_many_mutated_logs() -> None:
    assert fuzz(100_000, seconds=240, seed=2)[1] == {}


def test_mutations_leave_logs_that_are_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Else nothing behind the first look would be tried."""
    read = 0
    for number in range(100):
        name, held = mutated(random.Random(number))
        path = tmp_path_factory.mktemp("log") / name
        path.write_bytes(held)
        try:
            read += looked(path).points > 0
        except (LogError, ValueError):  # several runs in one file
            continue
    assert read > 20
