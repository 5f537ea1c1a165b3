"""Root cause over symptom: of several faults the one that explains the others, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadyrun.questions.form import FAULT, GRADES, SUSPECT, Outcome
from steadyrun.trees.walker import Asked

# What was tried on live objects or executed again, then what was seen happening, then what the numbers say.
PROOFS = {"P": "preflight", "R": "replay", "A": "audit"}
# What preflight tried before the run and the run shows by itself: where both are found, it is one finding.
SAME = {
    "P1.1": ("A7.1",),
    "P1.2": ("A3.7", "A7.1"),
    "P1.3": ("A3.3",),
    "P1.4": ("A3.4", "A3.9"),
    "P1.5": ("A3.5",),
    "P1.6": ("A3.6",),
    "P1.7": ("S1.4", "A5.7"),
    "P1.8": ("C4.2",),
    "P2.2": ("A5.1",),
    "P2.3": ("A5.3",),
    "P3.1": ("A3.2",),
    "P3.2": ("A3.1",),
    "P3.6": ("S1.1",),
    "P4.1": ("A4.1",),
    "P4.3": ("A4.4",),
    "P4.4": ("A4.2",),
    "P4.5": ("A4.3",),
    "P4.6": ("A4.5",),
    "P4.7": ("C6.1",),
    "P4.8": ("A4.7",),
    "P5.1": ("A1.1", "A1.2", "C1.2"),
    "P5.2": ("A1.3",),
    "P5.3": ("C6.3",),
    "P5.8": ("C2.1", "C2.2"),
    "P6.2": ("A4.8",),
    "P6.3": ("S6.1",),
    "A1.2": ("C1.2",),
}
FROM_THE_START = 2  # steps: what is seen by then was so from the first step on; many series are sampled


@dataclass(frozen=True)
class Ranking:
    """One headline, what follows from it, and faults of their own beside it."""

    headline: Asked | None
    consequences: tuple[Asked, ...] = ()
    beside: tuple[Asked, ...] = ()


def ranked(path: Sequence[Asked]) -> Ranking:
    """The headline of a walk: a fault that no other fault explains, proofs before statistics, else in walking order.

    If there is no fault, the suspects are ranked in the same way.
    """
    faults = [asked for asked in path if asked.answer.kind == FAULT]
    faults = faults or [asked for asked in path if asked.answer.kind == SUSPECT]
    if not faults:
        return Ranking(None)
    roots = [fault for fault in faults if not any(_goes_before(other, fault) for other in faults)]
    headline = min(roots or faults, key=_rank)
    follows = tuple(
        asked for asked in path if asked is not headline and asked.answer.kind in GRADES and _explains(headline, asked)
    )
    beside = tuple(fault for fault in faults if fault is not headline and fault not in follows)
    return Ranking(headline, follows, beside)


def proof(asked: Asked) -> str:
    """How a fault is known: by preflight, replay or an audit, or else by the tree."""
    return PROOFS.get(asked.question.code[:1], "tree")


def _goes_before(cause: Asked, fault: Asked) -> bool:
    """Whether `cause` explains `fault`, and not the other way round."""
    if cause is fault or not _explains(cause, fault):
        return False
    return not _explains(fault, cause) or _rank(cause) < _rank(fault)


def _explains(cause: Asked, other: Asked) -> bool:
    """Whether the outcome of `cause` names the other: by letter, section, question, or question and outcome.

    A cause explains nothing that came before it.
    """
    code, outcome = other.question.code, other.answer.outcome
    if code in SAME.get(cause.question.code, ()):
        return True
    if _came_before(other, cause):
        return False
    named = _outcome(cause).explains
    if f"{code}:{outcome}" in named:
        return True
    return not _outcome(other).proved and bool({code, code.partition(".")[0], code[:1]} & set(named))


def _came_before(other: Asked, cause: Asked) -> bool:
    """Whether one is known to begin before the other; what preflight or the program's text shows has no step."""
    began, later = other.answer.step, cause.answer.step
    return began is not None and later is not None and began < later and later > FROM_THE_START


def _outcome(asked: Asked) -> Outcome:
    return asked.question.outcome(asked.answer.outcome)


def _rank(asked: Asked) -> int:
    """Smaller is more certain; equal ones keep the order of the walk."""
    if _outcome(asked).symptom:
        return len(PROOFS) + 1
    return list(PROOFS.values()).index(proof(asked)) if proof(asked) != "tree" else len(PROOFS)
