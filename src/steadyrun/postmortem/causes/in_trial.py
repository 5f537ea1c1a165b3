"""The cause that a trial names: short twins of the program, of which one trains well."""

from __future__ import annotations

from steadyrun.errors import UsageError
from steadyrun.postmortem.causes.hypothesis import PROVES, Cause, Grounds, Sign
from steadyrun.postmortem.causes.in_walk import change_named, named_fault
from steadyrun.postmortem.evidence import TRIAL
from steadyrun.postmortem.remedies import FIX, Remedy
from steadyrun.questions.aliases import outcome_of
from steadyrun.questions.form import Outcome, Question
from steadyrun.report.limits import question_named
from steadyrun.store.trial_record import TrialRecord


def _trial(look: Grounds) -> TrialRecord | None:
    """Whether a trial found a fault that check does not already name as the cause."""
    trial = look.case.trial
    if trial is None or not trial.found_fault:
        return None
    asked = named_fault(look)
    return None if asked is not None and asked.question.code == trial.code else trial


def _known(trial: TrialRecord) -> tuple[Question | None, Outcome | None]:
    """The question and the outcome that a verdict names, if they exist."""
    code, name = outcome_of(trial.code, trial.outcome)
    try:
        question = question_named(code)
    except UsageError:
        return None, None
    return question, next((outcome for outcome in question.outcomes if outcome.name == name), None)


def _change(trial: TrialRecord) -> str:
    """The deciding change, in words."""
    return next((row.words for row in trial.rows if row.factor == trial.factor), "")


def _weigh(look: Grounds) -> list[Sign]:
    return look.sign(TRIAL, PROVES)


def _words(look: Grounds) -> tuple[str, str, int | None]:
    trial = look.case.trial
    assert trial is not None  # applies only if there is a trial
    question, outcome = _known(trial)
    title = "The trial names a cause" if question is None else f"{question.code}: {question.name}"
    claim = outcome.meaning if outcome is not None else trial.message.removesuffix(".") or "a twin trains better"
    return title, claim, None if question is None else question.panel


def _sentence(look: Grounds) -> str:
    trial = look.case.trial
    assert trial is not None
    outcome = _known(trial)[1]
    meaning = "" if outcome is None else f"{outcome.meaning[:1].upper()}{outcome.meaning[1:]}: "
    return f"{meaning}{trial.message or 'The trial found a fault.'}"


def _remedies(look: Grounds) -> list[Remedy]:
    trial = look.case.trial
    assert trial is not None
    question, outcome = _known(trial)
    fix = trial.fix or (outcome.fix if outcome is not None else "") or "Make the change that decided the trial."
    change = _change(trial) or "as in the trial"
    if question is not None and outcome is not None:
        change = change_named(question.code, outcome.name, look.case.signals)
    return [Remedy(FIX, fix, change, f"the trial: {trial.message}")]


def _lesson(look: Grounds) -> str:
    trial = look.case.trial
    assert trial is not None
    remedy = _remedies(look)[0]
    return f"{trial.message.removesuffix('.') or 'A trial found the cause'}. {remedy.text}"


TRIED_FAULT = Cause(
    "trial-fault",
    "A fault that a trial found",
    "short twins of the program train well with one change",
    None,
    _weigh,
    _sentence,
    _remedies,
    _lesson,
    applies=lambda look: _trial(look) is not None,
    named=_words,
)
