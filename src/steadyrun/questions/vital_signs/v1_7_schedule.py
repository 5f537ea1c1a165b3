"""V1.7: is the learning rate as declared?"""

from __future__ import annotations

from steadyrun.questions.configuration import c2_1_schedule
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOTE, PASS, SUSPECT, Finding, Limits, Outcome, Question
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Signals


def find(run: Signals, limit: Limits) -> Finding:
    answer = limit.ask(c2_1_schedule.QUESTION, run)
    if answer.kind == FAULT:
        return Finding("differs", answer.message, answer.measured, answer.step)
    if answer.kind in {PASS, NOTE}:
        return Finding("as-declared", answer.message, answer.measured)
    if answer.kind == CANNOT_TELL:
        raise MissingSignal(answer.missing[0], answer.message, answer.how_to_record)
    raise NotApplicable(answer.message, *answer.missing)


QUESTION = Question(
    code="V1.7",
    name="schedule as declared",
    asks="Does the learning rate follow the declared schedule?",
    why="If the learning rate differs from the declared one, no other result can be attributed to the configuration.",
    needs=("lr/*",),
    panel=2,
    thresholds=(),
    outcomes=(
        Outcome(name="as-declared", answer=PASS, meaning="the learning rate follows the declared schedule"),
        Outcome(
            name="differs",
            answer=SUSPECT,
            meaning="the learning rate does not follow the declared schedule",
            experiment="Run `steadyrun explain C2.1`, which lists the ways a schedule goes wrong.",
            may_pass=True,
            symptom=True,
        ),
    ),
    find=find,
    always=True,
)
