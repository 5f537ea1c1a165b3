"""The faults that the live monitor announced, and what became of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steadyrun.questions.aliases import code_of
from steadyrun.questions.form import FAULT, SUSPECT, Answer, Question
from steadyrun.records import Event
from steadyrun.signals.run_signals import Signals
from steadyrun.trees.walker import Walk, walk


@dataclass(frozen=True)
class Announced:
    """A fault of which a line was printed while the run went on; `now` is the same question's answer today."""

    code: str
    name: str
    outcome: str
    step: int | None
    noticed: int | None
    message: str
    certain: bool
    now: Answer | None  # None where this version has no such question
    shown: bool  # whether the walk has it as a fault already

    @property
    def stands(self) -> bool:
        return self.now is not None and self.now.kind in {FAULT, SUSPECT}

    def to_dict(self) -> dict[str, Any]:
        now = None
        if self.now is not None:
            keys = {"answer": self.now.kind, "outcome": self.now.outcome, "message": self.now.message}
            now = keys | {"measured": dict(self.now.measured), "fix": self.now.fix}
        return {
            "code": self.code,
            "outcome": self.outcome,
            "step": self.step,
            "noticed": self.noticed,
            "message": self.message,
            "certain": self.certain,
            "still_a_fault": self.stands,
            "now": now,
        }


def announced(questions: Mapping[str, Question], run: Signals, walked: Walk) -> tuple[Announced, ...]:
    """What was announced, once for each question, in the order in which it was noticed.

    A question that the walk did not reach is asked for it.
    """
    events: dict[str, Event] = {}
    for event in [*run.events("suspect"), *run.events("warning"), *run.events("fault")]:  # the last says most
        code = event.fields.get("code")
        if isinstance(code, str) and code:
            events[code_of(code)] = event
    faults = [_announced(code, event, questions, run, walked) for code, event in events.items()]
    return tuple(sorted(faults, key=lambda fault: (fault.noticed is None, fault.noticed or 0)))


def _announced(code: str, event: Event, questions: Mapping[str, Question], run: Signals, walked: Walk) -> Announced:
    asked = [answered for answered in walked.path if answered.question.code == code]
    question = asked[0].question if asked else questions.get(code)
    now = next(
        (answered.answer for answered in asked if answered.answer.kind in {FAULT, SUSPECT}),
        asked[0].answer if asked else None,
    )
    if now is None and question is not None:
        now = walk({code: question}, run, walked.changes).path[0].answer
    noticed = event.fields.get("noticed")
    return Announced(
        code,
        question.name if question is not None else "",
        str(event.fields.get("outcome", "")),
        event.step,
        noticed if isinstance(noticed, int) else None,
        str(event.fields.get("message", "")),
        event.kind == "fault",
        now,
        any(answered.answer.kind in {FAULT, SUSPECT} for answered in asked),
    )
