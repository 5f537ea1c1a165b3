"""P5.5: are two identical steps identical?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.questions.form import NOTE, PASS, Finding, Limits, Outcome, Question, Threshold
from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.preflight.bench import Bench


def find(bench: Bench, limit: Limits) -> Finding:
    from steadyrun.preflight.rehearsal import rehearsal
    from steadyrun.preflight.step_difference import first_difference

    made = rehearsal(bench)
    difference = first_difference(bench, made.first, made.again)
    if difference is None:
        return Finding("pass", "the same step from the same state is the same, bit for bit.", {"relative": 0.0})
    facts = f"the same step from the same state, batch and random state differs, first in {difference.words}"
    measured = {"relative": difference.relative}
    if difference.relative <= limit["rounding"]:
        return Finding("rounding", f"{facts}, by {shown(difference.relative)} of it.", measured)
    message = f"{facts}, by {shown(difference.relative)} of it (rounding: up to {limit['rounding']:g})."
    return Finding("differs", message, measured)


QUESTION = Question(
    code="P5.5",
    name="steps are repeatable",
    asks="Is the same step from the same state, batch and random state the same?",
    why="A step that differs from itself cannot be replayed or resumed exactly, and two runs cannot be compared.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="rounding",
            value=1e-3,
            unit="relative",
            meaning="a difference up to this is the order of sums on a GPU",
            seed="",
            decision="on a CPU the two are equal bit for bit; atomic additions on a GPU differ by 1e-6 to 1e-4",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="a step is repeatable"),
        Outcome(name="rounding", answer=NOTE, meaning="a step repeats up to rounding, as on a GPU"),
        Outcome(
            name="differs",
            answer=NOTE,
            meaning="something that preflight cannot see changes from step to step",
            fix="Look for a random generator of its own, a counter, a cache, the time, or operations that are not "
            "deterministic (torch.use_deterministic_algorithms tells).",
        ),
    ),
    find=find,
    tried=True,
)
