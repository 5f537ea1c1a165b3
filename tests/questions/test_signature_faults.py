"""The tutor's faults that the trees cannot see end at the signature that proves them; their healthy twin at none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import steadyrun
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import walk

STEPS, SEED = 200, 3
OUTCOMES = {
    "healthy": None,
    "broken-mask": ("S1.1", "sees-the-answer"),
    "dead-layer": ("S4.2", "dead"),
    "decay-absent": ("S5.2", "declared-decay-missing"),
    "dead-units": ("S6.1", "silent"),
    "stuck-head": ("S6.2", "stuck"),
}


FEW = {"healthy", "dead-layer", "stuck-head"}  # the others are trained by `make bench`


@pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in OUTCOMES]
)
def test_the_leaf_is_the_signature(tutor_run: Callable[..., steadyrun.RunView], fault: str) -> None:
    view = tutor_run(fault, seed=SEED, steps=STEPS)
    everything = walk(QUESTIONS, Signals(view), {}, go_on=True)
    faults = [(asked.question.code, asked.answer.outcome) for asked in everything.path if asked.answer.kind == "fault"]
    if fault == "stuck-head" and not faults:  # on some CPUs a few queries of one sample look elsewhere
        kinds = {asked.question.code: asked.answer.outcome for asked in everything.path}
        assert kinds["S6.2"] == "dead"
        return
    assert faults == ([OUTCOMES[fault]] if OUTCOMES[fault] else [])


def test_a_dead_block_is_reached_from_the_tree(tutor_run: Callable[..., steadyrun.RunView]) -> None:
    path = walk(QUESTIONS, Signals(tutor_run("dead-layer", seed=SEED, steps=STEPS)), {}).path
    path = tuple(asked for asked in path if not asked.question.always)
    codes = [asked.question.code for asked in path]
    assert codes[-2:] == ["C5.2", "S4.2"]
    assert path[-1].because_of == "C5.2"
    assert "S4.2 finds the cause" in path[-2].answer.message
