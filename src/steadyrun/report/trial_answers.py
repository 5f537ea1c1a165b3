"""What a trial has decided about a run: a suspect becomes a fault or is cleared. And which trial would decide one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Answer, Outcome, Question
from steadyrun.report.kept_answers import cannot_be_asked
from steadyrun.report.two_sources import TRIAL
from steadyrun.store.run_summary import one_line
from steadyrun.store.trial_file import read_trial
from steadyrun.trees import QUESTIONS
from steadyrun.trees.walker import Asked

# The changes that decide about a suspect. For all others the whole trial is tried.
CHANGES: dict[str, tuple[str, ...]] = {
    "C5.1": ("start", "rate"),
    "C7.1": ("rate", "clip"),
    "C7.2": ("rate", "warmup", "optimizer-settings", "clip"),
    "C7.3": ("decay", "rate"),
    "C7.4": ("optimizer-settings", "rate"),
    "C7.5": ("dropout", "rate"),
    "C7.6": ("smoothing", "rate"),
    "A4.5": ("precision", "rate"),
    "A5.6": ("targets", "preparation"),
    "A5.7": ("targets", "preparation"),
    "S1.4": ("targets", "preparation"),
    "P6.5": ("rate", "warmup", "clip"),
}
# What a cause follows from that makes a run learn badly from its first step on.
_FOLLOWS = ("C3", "C4", "D2", "D4", "S1", "S3", "S5", "V1", "P6")
_LONGEST = 2_000  # characters of a message that are shown
_CLEARS = ("clear", "improvement", "fault")


def with_trial(path: Iterable[Asked], root: Path) -> tuple[Asked, ...]:
    """The answers of a walk with what a trial of the run has decided."""
    answers, content = tuple(path), read_trial(root)
    if content is None:
        return answers
    found = _fault(content)
    answers = tuple(_cleared(asked, content, found) for asked in answers)
    if found is None:
        return answers
    code = found.question.code
    same = next((asked for asked in answers if asked.question.code == code), None)
    if same is None:
        return (*answers, found)
    return tuple(_joined(found, asked) if asked is same else asked for asked in answers)


def _fault(content: Mapping[str, Any]) -> Asked | None:
    """The fault that a trial has found, in the words of the question about its cause."""
    code, outcome, message = (str(content.get(name) or "") for name in ("code", "outcome", "message"))
    if content.get("verdict") != FAULT or not code:
        return None
    asked_there = _question(code)
    known = next((each for each in asked_there.outcomes if each.name == outcome), None) if asked_there else None
    named = Outcome(name=outcome, answer=FAULT, meaning=one_line(message)[:_LONGEST]) if known is None else known
    fix = str(content.get("fix") or "")[:_LONGEST] or named.fix
    decided = replace(named, answer=FAULT, fix=fix, explains=(*named.explains, *_FOLLOWS), symptom=False)
    name = asked_there.name if asked_there else "a trial of the program"
    asks = asked_there.asks if asked_there else "Which change makes the program learn?"
    question = Question(code, name, asks, "", (), None, (), (decided,), cannot_be_asked)
    answer = Answer(FAULT, outcome, f"A trial decides: {one_line(message)[:_LONGEST]}", fix=fix)
    return Asked(question, answer, {}, source=TRIAL)


def _question(code: str) -> Question | None:
    from steadyrun.preflight import PROBES

    return next((question for question in (*QUESTIONS.values(), *PROBES.values()) if question.code == code), None)


def _joined(found: Asked, recorded: Asked) -> Asked:
    """The trial's fault, with what the record showed beside it."""
    if recorded.answer.kind not in (FAULT, SUSPECT, NOTE):
        return replace(found, also=recorded)
    if recorded.answer.kind == FAULT:  # the record proves it already: the trial is further evidence
        message = f"{recorded.answer.message} {found.answer.message}"
        return replace(recorded, answer=replace(recorded.answer, message=message), also=found)
    message = f"{found.answer.message} The record: {recorded.answer.message}"
    return replace(found, answer=replace(found.answer, message=message, step=recorded.answer.step), also=recorded)


def _cleared(asked: Asked, content: Mapping[str, Any], found: Asked | None) -> Asked:
    """A suspect becomes a note if the trial tried what would decide it and that decided nothing."""
    tested = content.get("tested")
    code = asked.question.code
    mine = found is not None and found.question.code == code
    if asked.answer.kind != SUSPECT or mine or content.get("verdict") not in _CLEARS:
        return asked
    if not isinstance(tested, list) or code not in tested:
        return asked
    message = f"{asked.answer.message} A trial cleared it: {one_line(str(content.get('message') or ''))[:_LONGEST]}"
    return replace(asked, answer=replace(asked.answer, kind=NOTE, message=message, experiment=""), source=TRIAL)


def trial_command(asked: Asked | None, run: str, factory: str) -> str:
    """What to type to decide a suspect; "" if a trial has decided it, or cannot."""
    if asked is None or asked.answer.kind != SUSPECT or asked.source == TRIAL:
        return ""
    only = CHANGES.get(asked.question.code, ())
    words = ["trial", factory or "YOUR_SCRIPT.py:FUNCTION", "--run", run]
    return shlex.join([*words, *(["--only", ",".join(only)] if only else [])])
