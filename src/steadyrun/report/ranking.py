"""Root cause over symptom: of several faults the one that explains the others, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadyrun.questions.form import FAULT, GRADES, SUSPECT, Outcome
from steadyrun.report.two_sources import TRIAL
from steadyrun.trees.walker import Asked

# What was tried on live objects or executed again, then what was seen happening, then what twins decided, then what the
# numbers say.
PROOFS = ("preflight", "replay", "audit", "trial")
_BY_LETTER = {"E": "replay", "A": "audit", "R": "audit"}
# One mistake under two codes, since one of them asks for more: where both are found, it is one finding.
SAME = {"P1.1": ("A7.1",), "P1.2": ("A7.1",), "P1.7": ("S1.4", "A5.7"), "A3.4": ("A3.9",), "A1.2": ("C1.2",)}
SAME |= {"R4.1": ("A7.1",)}
FROM_THE_START = 2  # steps: what is seen by then was so from the first step on; many series are sampled


@dataclass(frozen=True)
class Ranking:
    """One headline, what follows from it, and faults of their own beside it."""

    headline: Asked | None
    consequences: tuple[Asked, ...] = ()
    beside: tuple[Asked, ...] = ()


def ranked(path: Sequence[Asked]) -> Ranking:
    """The headline of a walk: a fault that no other fault explains, proofs before statistics, else in walking order.

    If there is no fault, the suspects are ranked in the same way. A suspect that names a fault by question and outcome
    goes before it: "the loss does not fall" is certain, and says less than its likely cause.
    """
    faults = [asked for asked in path if asked.answer.kind == FAULT]
    suspects = [asked for asked in path if asked.answer.kind == SUSPECT]
    faults = [*faults, *(each for each in suspects if any(_names_exactly(each, fault) for fault in faults))] or suspects
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
    """How a fault is known: by a trial, preflight, replay or an audit, or else by the tree."""
    if asked.source == TRIAL:
        return TRIAL
    return "preflight" if _was_tried(asked) else _BY_LETTER.get(asked.question.code[:1], "tree")


def in_trees(asked: Asked) -> bool:
    """Whether a question of the trees gave the answer, and no trial, probe, replay or audit."""
    return not asked.source and not asked.question.tried and asked.question.code[:1] not in _BY_LETTER


def _was_tried(asked: Asked) -> bool:
    """Whether preflight found it, alone or as the record does."""
    also = asked.also
    return asked.question.tried or (also is not None and also.question.tried and also.answer.kind == asked.answer.kind)


def _goes_before(cause: Asked, fault: Asked) -> bool:
    """Whether `cause` explains `fault`, and not the other way round."""
    if cause is fault or not _explains(cause, fault):
        return False
    if cause.answer.kind != fault.answer.kind:  # of a suspect and a fault only what is named exactly counts
        return _names_exactly(cause, fault) or (cause.answer.kind == FAULT and not _names_exactly(fault, cause))
    return not _explains(fault, cause) or _rank(cause) < _rank(fault)


def _names_exactly(cause: Asked, fault: Asked) -> bool:
    """Whether the outcome of `cause` names the other by its question and its outcome."""
    return f"{fault.question.code}:{fault.answer.outcome}" in _explained(cause) and not _came_before(fault, cause)


def _explains(cause: Asked, other: Asked) -> bool:
    """Whether the outcome of `cause` names the other: by letter, section, question, or question and outcome.

    A cause explains nothing that came before it.
    """
    code, outcome = other.question.code, other.answer.outcome
    if code in SAME.get(cause.question.code, ()):
        return True
    if _came_before(other, cause):
        return False
    named = _explained(cause)
    if f"{code}:{outcome}" in named:
        return True
    return not _outcome(other).proved and bool(_names(other) & named)


def _explained(cause: Asked) -> set[str]:
    """What follows from a cause, by both sources that found it."""
    found = [cause, *([cause.also] if cause.also is not None and cause.also.answer.kind == FAULT else [])]
    return {name for asked in found for name in _outcome(asked).explains}


def _names(asked: Asked) -> set[str]:
    """What a finding is called by its causes: by code, section and letter.

    What preflight found before the first step follows from no training: its causes name it by its code of preflight.
    """
    codes = (_was_tried(asked) and asked.question.aliases) or (asked.question.code,)
    return {name for code in codes for name in (code, code.partition(".")[0], code[:1])}


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
    return PROOFS.index(proof(asked)) if proof(asked) in PROOFS else len(PROOFS)
