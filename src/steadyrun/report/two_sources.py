"""One cause, two sources of evidence: what preflight tried before the run and what its record shows are said once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from steadyrun.questions.form import FAULT, GRADES
from steadyrun.trees.walker import Asked

PREFLIGHT, RECORD, REPLAY, TRIAL = "preflight", "record", "replay", "trial"
REPLAYED = "E"  # "executed again": codes of what replays have found begin with it
CONFIG = "N"  # codes of notes about the declared config
WITHOUT_PAGE = (REPLAYED, "T", CONFIG)  # found by a replay, a trial or the recorder alone: no question asks about it
_LEADS = {PREFLIGHT: "Preflight, before the run:", RECORD: "The record:"}


def source(asked: Asked) -> str:
    """Where an answer is from."""
    if asked.source:
        return asked.source
    if asked.question.tried:
        return PREFLIGHT
    return REPLAY if asked.question.code.startswith(REPLAYED) else RECORD


def joined(path: Iterable[Asked], before: Iterable[Asked]) -> Iterator[Asked]:
    """The answers of a walk, each with what preflight said of the same cause; then what only preflight asked."""
    tried = {asked.question.code: asked for asked in before}
    for seen in path:
        kept = tried.pop(seen.question.code, None)
        yield seen if kept is None else _both(seen, kept)
    yield from tried.values()


def _both(seen: Asked, tried: Asked) -> Asked:
    """The graver answer with the other beside it, as evidence if it found something as well."""
    first, other = (tried, seen) if _tried_first(seen, tried) else (seen, tried)
    if other.answer.kind not in GRADES:
        return replace(first, also=other)
    message = f"{first.answer.message} {_LEADS[source(other)]} {other.answer.message}"
    return replace(first, answer=replace(first.answer, message=message), also=other)


def _tried_first(seen: Asked, tried: Asked) -> bool:
    """Of two different faults the one that was tried comes first, which is a proof; of the same one the record's."""
    if _grade(seen) != _grade(tried):
        return _grade(tried) < _grade(seen)
    return tried.answer.kind == FAULT and tried.answer.outcome != seen.answer.outcome


def _grade(asked: Asked) -> int:
    """Smaller is graver; what found nothing is all alike."""
    return GRADES.index(asked.answer.kind) if asked.answer.kind in GRADES else len(GRADES)
