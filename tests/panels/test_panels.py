"""What the panels of real runs show, healthy and faulty: the view models as text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from outlines import outline
from samples import only

import steadyrun
from steadyrun.panels.board import board_of
from steadyrun.questions import QUESTIONS

HERE = Path(__file__).parent / "golden"
RUNS = {"healthy": 400, "bad-init": 400, "no-warmup": 400, "broken-mask": 400, "lr-jump": 600, "log-of-zero": 400}
"""Which fault, for how many steps."""


@pytest.fixture(autouse=True)
def _two_trees() -> Iterator[None]:
    """The trees of configuration and dynamics: what more is asked changes captions, not panels."""
    with only({code: question for code, question in QUESTIONS.items() if code[0] in "CD"}):
        yield


@pytest.mark.parametrize("fault", RUNS)
def test_panels_of_a_real_run(tutor_run: Callable[..., steadyrun.RunView], fault: str) -> None:
    """To accept a change: run with ACCEPT=1 in the environment, and look at the difference."""
    found = outline(board_of(tutor_run(fault, seed=1, steps=RUNS[fault]).root)) + "\n"
    golden = HERE / f"{fault}.txt"
    if os.environ.get("ACCEPT"):
        golden.write_text(found)
    assert found == golden.read_text()
