"""What a trial has decided about a run: a suspect becomes a fault or is cleared. And which trial would decide one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from steadyrun.questions.form import FAULT, NOTE, SUSPECT, Answer, Outcome, Question
from steadyrun.report.kept_answers import cannot_be_asked
from steadyrun.report.two_sources import TRIAL
from steadyrun.store.trial_record import CLEAR, IMPROVEMENT, TrialRecord, trial_record
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
_CLEARS = (CLEAR, IMPROVEMENT, FAULT)


def with_trial(path: Iterable[Asked], root: Path) -> tuple[Asked, ...]:
    """The answers of a walk with what a trial of the run has decided."""
    answers, record = tuple(path), trial_record(root)
    if record is None:
        return answers
    found = _fault(record)
    answers = tuple(_cleared(asked, record, found) for asked in answers)
    if found is None:
        return answers
    code = found.question.code
    same = next((asked for asked in answers if asked.question.code == code), None)
    if same is None:
        return (*answers, found)
    return tuple(_joined(found, asked) if asked is same else asked for asked in answers)


def _fault(record: TrialRecord) -> Asked | None:
    """The fault that a trial has found, in the words of the question about its cause."""
    code, outcome, message = record.code, record.outcome, record.message
    if not record.found_fault or not code:
        return None
    asked_there = _question(code)
    known = next((each for each in asked_there.outcomes if each.name == outcome), None) if asked_there else None
    named = known or Outcome(name=outcome, answer=FAULT, meaning=message)
    fix = record.fix or named.fix
    decided = replace(named, answer=FAULT, fix=fix, explains=(*named.explains, *_FOLLOWS), symptom=False)
    name = asked_there.name if asked_there else "a trial of the program"
    asks = asked_there.asks if asked_there else "Which change makes the program learn?"
    question = Question(code, name, asks, "", (), None, (), (decided,), cannot_be_asked)
    answer = Answer(FAULT, outcome, f"A trial decides: {message}", fix=fix)
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


def _cleared(asked: Asked, record: TrialRecord, found: Asked | None) -> Asked:
    """A suspect becomes a note if the trial tried what would decide it and that decided nothing."""
    code = asked.question.code
    mine = found is not None and found.question.code == code
    if asked.answer.kind != SUSPECT or mine or record.verdict not in _CLEARS or code not in record.tested:
        return asked
    message = f"{asked.answer.message} A trial cleared it: {record.message}"
    return replace(asked, answer=replace(asked.answer, kind=NOTE, message=message, experiment=""), source=TRIAL)


def trial_command(asked: Asked | None, run: str, factory: str) -> str:
    """What to type to decide a suspect; "" if a trial has decided it, or cannot: its twins have one process each."""
    if asked is None or asked.answer.kind != SUSPECT or asked.source == TRIAL or asked.question.code.startswith("R"):
        return ""
    only = CHANGES.get(asked.question.code, ())
    return whole_trial(run, factory) + (f" --only {','.join(only)}" if only else "")


def whole_trial(run: str, factory: str) -> str:
    """What to type to try every change."""
    kept = [] if Path(run).is_file() else ["--run", run]  # with a log nothing can be kept
    return shlex.join(["trial", factory or "YOUR_SCRIPT.py:FUNCTION", *kept])
