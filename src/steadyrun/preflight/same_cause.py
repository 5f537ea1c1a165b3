"""A probe of a cause that the record shows as well: one code, name and reason, and two sources of evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steadyrun.questions.form import Finding, Limits, Outcome, Question, Threshold


def probe_of(
    recorded: Question,
    *,
    asks: str,
    needs: tuple[str, ...],
    find: Callable[[Any, Limits], Finding],
    outcomes: tuple[Outcome, ...],
    thresholds: tuple[Threshold, ...] = (),
) -> Question:
    """The probe that tries on live objects what the record's question sees in the run."""
    return Question(
        code=recorded.code,
        name=recorded.name,
        asks=asks,
        why=recorded.why,
        needs=needs,
        panel=None,
        thresholds=thresholds,
        outcomes=outcomes,
        find=find,
        tried=True,
    )


def same(recorded: Question, name: str, explains: tuple[str, ...] = (), meaning: str = "") -> Outcome:
    """An outcome of the record's question with its fix; before training other faults follow from it."""
    outcome = recorded.outcome(name)
    return replace(outcome, meaning=meaning or outcome.meaning, explains=explains, may_pass=False, panel=None)


def same_limits(recorded: Question, *names: str) -> tuple[Threshold, ...]:
    """Limits that hold for both sources."""
    return tuple(threshold for threshold in recorded.thresholds if threshold.name in names)
