"""P5.5: does the same step give the same result?"""

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
        return Finding("pass", "Repeating a step from the same state is bit-identical.", {"relative": 0.0})
    facts = f"Repeating a step from the same state, batch and random state changes {difference.words}"
    measured = {"relative": difference.relative}
    if difference.relative <= limit["rounding"]:
        return Finding("rounding", f"{facts} by a fraction of {shown(difference.relative)}.", measured)
    message = f"{facts} by a fraction of {shown(difference.relative)} (rounding: up to {limit['rounding']:g})."
    return Finding("differs", message, measured)


QUESTION = Question(
    code="P5.5",
    name="steps are repeatable",
    asks="Does the same step from the same state, batch and random state give the same result?",
    why="A step that does not repeat cannot be replayed or resumed exactly, and two runs cannot be compared.",
    needs=("optimizer", "loss_fn", "batches"),
    panel=None,
    thresholds=(
        Threshold(
            name="rounding",
            value=1e-3,
            unit="relative",
            meaning="a smaller difference is due to the order of sums on a GPU",
            seed="",
            decision="on a CPU both steps are bit-identical; atomic additions on a GPU differ by 1e-6 to 1e-4",
        ),
    ),
    outcomes=(
        Outcome(name="pass", answer=PASS, meaning="a step is repeatable"),
        Outcome(name="rounding", answer=NOTE, meaning="a step repeats up to rounding, as on a GPU"),
        Outcome(
            name="differs",
            answer=NOTE,
            meaning="the same step gives different results",
            fix="Look for a private random generator, a counter, a cache, the time, or nondeterministic operations "
            "(torch.use_deterministic_algorithms(True) reports them).",
        ),
    ),
    find=find,
    tried=True,
)
