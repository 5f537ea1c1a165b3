"""Probes of causes that a recorded run also shows: one code, name and reason, two sources of evidence."""

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
    """The probe that tests on live objects what a question finds in a recorded run."""
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
    """An outcome of the recorded question with its fix, and the faults it explains before training."""
    outcome = recorded.outcome(name)
    return replace(outcome, meaning=meaning or outcome.meaning, explains=explains, may_pass=False, panel=None)


def same_limits(recorded: Question, *names: str) -> tuple[Threshold, ...]:
    """Thresholds of the recorded question that the probe shares."""
    return tuple(threshold for threshold in recorded.thresholds if threshold.name in names)
