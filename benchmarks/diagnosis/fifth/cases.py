"""The cases of the fifth fleet: which bug is built into which program, which healthy runs there are, and the halves."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from diagnosis.cases import Case, cases_of, twin_of
from diagnosis.fifth.causes import CAUSES
from diagnosis.fifth.parts import joined

HALVES = ("tuning", "frozen")
HEALTHY: dict[str, tuple[str, dict[str, Any]]] = joined("HEALTHY")
TWINS_OF: dict[str, str] = joined("TWINS_OF")


def twin(program: str, bug: str) -> str:
    """The healthy case that a faulty one differs from by the bug alone."""
    return twin_of(TWINS_OF[bug], HEALTHY, program)


def cases(seeds: int = 3, only: str = "*") -> list[Case]:
    """All cases whose name fits; `only` may be a pattern such as 'ppo-*'."""
    assert TWINS_OF.keys() == CAUSES.keys()
    return cases_of("fifth", TWINS_OF, HEALTHY, seeds, only)


def half_of(case: Case) -> str:
    """The half of a case: every program's bugs are dealt out in an order by chance, and so are its healthy runs.

    All seeds of a bug are in the same half. Programs that are added later change nothing.
    """
    same = [each for each in cases(1) if each.program == case.program and (each.bug is None) == (case.bug is None)]
    order = sorted((_key(each) for each in same), key=_drawn)
    return HALVES[(order.index(_key(case)) + int(_drawn(f"{case.program} {case.bug is None}"), 16)) % 2]


def _key(case: Case) -> str:
    return case.name if case.bug is None else f"{case.program}-{case.bug}"


def _drawn(text: str) -> str:
    return sha256(f"fifth fleet: {text}".encode()).hexdigest()
