"""Questions and thresholds by the names people type; an unknown name gets an error that helps."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from steadyrun.errors import UsageError
from steadyrun.preflight import PROBES
from steadyrun.questions.form import Question
from steadyrun.trees import QUESTIONS


def everything() -> dict[str, Question]:
    """Every question: those of the trees, then the probes of preflight."""
    return {**QUESTIONS, **PROBES}


def question_named(code: str) -> Question:
    """The question with this code, in any case."""
    known = everything()
    question = known.get(code.upper())
    if question is None:
        near = [
            known_code for known_code in known if known_code[:1] == code[:1].upper()
        ]  # of the same tree, or of preflight
        raise UsageError(f"there is no question {code!r}; {hint(code.upper(), near or known)}")
    return question


def threshold_named(full_name: str) -> tuple[str, str]:
    """`("C3.1", "high")` for `"C3.1.high"`, if there is such a threshold."""
    code, _, name = full_name.rpartition(".")
    question = question_named(full_name if full_name.upper() in everything() else code or full_name)
    known = [f"{question.code}.{threshold.name}" for threshold in question.thresholds]
    if f"{question.code}.{name}" not in known:
        raise UsageError(f"there is no threshold {full_name!r}; {hint(full_name, known)}")
    return question.code, name


def hint(name: str, known: Iterable[str]) -> str:
    """What the writer may have meant, and what there is."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    listed = ", ".join(names) or "none"
    return f"did you mean {' or '.join(close)}? There are: {listed}" if close else f"there are: {listed}"
