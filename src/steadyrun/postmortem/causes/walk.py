"""Causes that the walk names itself, and exceptions: whatever the catalogue has no entry of its own for."""

from __future__ import annotations

from steadyrun.postmortem.causes.form import FAVOURS, PROVES, Cause, Look, Sign, raised_at
from steadyrun.postmortem.changes import change_for
from steadyrun.postmortem.proofs import text
from steadyrun.postmortem.remedies import FIX, Remedy
from steadyrun.report import words
from steadyrun.report.recorded import REPLAYED
from steadyrun.trees.walker import Asked

# Faults that say what is wrong and not why: certain, and still no cause.
_SYMPTOMS = frozenset({"C4.1", "D1.1", "D1.3", "D2.4", "D4.3", "D4.4"})
_SYMPTOM_OUTCOMES = frozenset(
    {("C1.2", "nothing"), ("C3.1", "always-clipping"), ("C3.1", "dead"), ("D3.2", "collapsed"), ("D3.2", "skipping")}
)
_OWN_ENTRY = frozenset({"D2.3", "D3.1", "D3.2"})  # weighed by name elsewhere in the catalogue
# What the walk calls a fault and experiments or a replay call by the name of the group: the fault is the sharper word.
_SHARPER = {
    "unusual-batch": ("A5.4", "A7.1", "A3.7"),
    "exception": ("A7.1",),
    "learning-rate": ("C2.1", "C2.2", "D4.2"),
    "optimizer-state": ("C6.2",),
    "precision": ("A4.5", "A6.1"),
    "model-numerics": ("A3.1", "A3.7", "C5.1", "C5.2"),
}


def is_symptom(asked: Asked) -> bool:
    """Whether a fault says what is wrong and leaves open why."""
    code = asked.question.code
    return code in _SYMPTOMS or (code, asked.answer.outcome) in _SYMPTOM_OUTCOMES


def _has_entry(asked: Asked) -> bool:
    """Whether another entry of the catalogue weighs it: by name, or as what the replay of the incident found."""
    return asked.question.code in _OWN_ENTRY or asked.question.code.startswith(REPLAYED)


def named_fault(look: Look) -> Asked | None:
    """The first fault of the walk that no other entry of the catalogue is about; one about this incident first."""
    others = [asked for asked in look.case.faults if not _has_entry(asked) and not is_symptom(asked)]
    near = [asked for asked in others if look.case.concerns(asked)]
    headline = look.case.report.headline
    return next((asked for asked in others if asked is headline), next(iter(near or others), None))


def says_the_same(look: Look, cause: str) -> bool:
    """Whether the fault that the walk names is what a cause of the catalogue means, in sharper words."""
    asked = named_fault(look)
    return asked is not None and asked.question.code in _SHARPER.get(cause, ())


def _weigh_fault(look: Look) -> list[Sign]:
    asked = named_fault(look)
    if asked is None:
        return []
    proves = look.case.concerns(asked)
    return look.sign(
        f"walk:{asked.question.code}", PROVES if proves else FAVOURS, 1.0 if look.case.concerns(asked) else 0.5
    )


def _fault_sentence(look: Look) -> str:
    asked = named_fault(look)
    if asked is None:
        return ""
    meaning = words.meaning(asked)
    return f"{meaning[:1].upper()}{meaning[1:]}: {asked.answer.message}"


def _fault_remedies(look: Look) -> list[Remedy]:
    asked = named_fault(look)
    if asked is None:
        return []
    return [
        Remedy(
            FIX,
            asked.answer.fix,
            change_for(asked, look.case.signals),
            f"{asked.question.code}: {asked.answer.message}",
        )
    ]


def _fault_lesson(look: Look) -> str:
    asked = named_fault(look)
    return "" if asked is None else f"{asked.answer.message.removesuffix('.')}. {asked.answer.fix}"


def _fault_words(look: Look) -> tuple[str, str, int | None]:
    asked = named_fault(look)
    assert asked is not None  # it applies only where there is one
    name = words.one_line(asked.question.name)
    return f"{asked.question.code}: {name}", words.meaning(asked), asked.panel


NAMED_FAULT = Cause(
    "walk-fault",
    "A fault that the walk names",
    "the run has a fault of its own, found by the decision tree",
    None,
    _weigh_fault,
    _fault_sentence,
    _fault_remedies,
    _fault_lesson,
    applies=lambda look: named_fault(look) is not None,
    named=_fault_words,
)


def _weigh_raised(look: Look) -> list[Sign]:
    return look.sign("raised", PROVES) if look.case.proofs.reproduced else look.sign("raised", FAVOURS, 3.0)


def _why(look: Look) -> str:
    return text(look.case.proofs.incident, "why").removesuffix(".") or "An exception"


EXCEPTION = Cause(
    "exception",
    "The program raised an exception",
    "a step of the program fails, whatever the numbers were",
    None,
    _weigh_raised,
    lambda look: f"The step raises an exception each time it is executed: {look.seen['raised'].text}",
    lambda look: [Remedy(FIX, "Mend what raises.", raised_at(look), text(look.case.proofs.incident, "why"))],
    lambda look: f"{_why(look)} at {raised_at(look)} ended the run; a test of one step on every batch catches it.",
    applies=lambda look: look.case.moment.raised or "raised" in look.seen,
)
