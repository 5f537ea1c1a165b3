"""What the live monitor calls certain of a run that goes on is a fault when it has ended."""

from __future__ import annotations

import pytest
from audit_cases import CASES as AUDITS
from cases import CASES as CONFIGURATION
from dynamics_cases import CASES as DYNAMICS
from signature_cases import CASES as SIGNATURES
from synthetic import Synthetic

from steadyrun.questions.form import FAULT
from steadyrun.signals.run_signals import Signals
from steadyrun.trees import QUESTIONS

CASES = CONFIGURATION + DYNAMICS + SIGNATURES + AUDITS


@pytest.mark.parametrize("before", [55, 110, 160, 220, 300, 400, 450, 550])
def test_what_is_certain_of_a_part_of_a_run_is_a_fault_of_the_whole(before: int) -> None:
    """Every synthetic run, as far as it had come: what the monitor would call certain then is a fault at the end."""
    for code, _, whole in CASES:
        answer = QUESTIONS[code].ask(Signals(until(whole, before)))
        if answer.kind == FAULT and not answer.edge and not answer.may_pass:
            assert QUESTIONS[code].ask(Signals(whole)).kind == FAULT, (code, answer.message)


def until(whole: Synthetic, step: int) -> Synthetic:
    """A run of which no more is there than its first steps."""
    events = [event for event in whole.events() if event.step is None or event.step < step]
    series = {name: whole.series(name) for name in whole.names()}
    kept = {
        name: (points.steps[points.steps < step], points.values[points.steps < step])
        for name, points in series.items()
        if points.steps[0] < step
    }
    manifest = {key: value for key, value in whole.manifest.items() if key != "config"}
    return Synthetic(whole.manifest["config"], manifest, events, "running", **kept)
