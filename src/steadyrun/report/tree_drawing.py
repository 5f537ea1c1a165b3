"""The trees as they are walked, drawn with characters: for `steadyrun explain tree` and the docs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from steadyrun.questions.form import FAULT, SUSPECT, Question
from steadyrun.report.question_page import SECTIONS, section_of
from steadyrun.trees import TREES

_ASKED = {
    "configuration": "Is the run set up as it was meant?",
    "dynamics": "What happened while it trained?",
    "signatures": "What does one see on the seven panels?",
    "audits": "What was seen happening in the loop? Asked behind a fault as well.",
    "ranks": "Do the processes of one job agree? Asked of several processes, behind a fault as well.",
    "post-training": "Do the right tokens, adapters, preferences and policies learn? Asked of runs that have them.",
    "vital signs": "Is the run alive? Asked of every run; all green or not applicable is healthy.",
}
_AFTER = {
    "configuration": "no fault: the dynamics tree",
    "dynamics": "no fault: the signatures",
    "signatures": "no fault: the vital signs decide",
}
HOW_TO_READ = (
    "The questions are asked from top to bottom, and the first fault is the answer. An arrow leads to where the cause "
    "of a symptom is looked for first: a fault found there is the answer."
)


def drawn(tree: str) -> list[str]:
    """One tree, by its name in `TREES`."""
    branches = [_section(code, list(questions)) for code, questions in groupby(TREES[tree], section_of)]
    last = [[_AFTER[tree]]] if tree in _AFTER else []
    return [f"{tree}: {_ASKED[tree]}", *_joined([*branches, *last])]


def all_drawn() -> list[str]:
    """All trees in the order of the walk."""
    return [line for tree in TREES for line in (*drawn(tree), "")][:-1]


def _section(code: str, questions: list[Question]) -> list[str]:
    return [f"{code} {SECTIONS[code]}", *_joined(_question(question) for question in questions)]


def _question(question: Question) -> list[str]:
    lines = [f"{question.code} {question.name}: {question.asks}"]
    for grade in (FAULT, SUSPECT):
        named = [outcome.name for outcome in question.outcomes if outcome.answer == grade]
        if named:
            lines.append(f"    {grade}: {', '.join(named)}")
    for targets, edges in groupby(question.edges.items(), lambda edge: edge[1]):
        lines.append(f"    {', '.join(outcome for outcome, _ in edges)} → {', '.join(targets)}")
    return lines


def _joined(branches: Iterable[list[str]]) -> Iterator[str]:
    """Branches below each other, with the lines that join them."""
    several = list(branches)
    for number, (first, *rest) in enumerate(several, 1):
        is_last = number == len(several)
        yield f"{'└─' if is_last else '├─'} {first}"
        yield from (f"{'   ' if is_last else '│  '}{line}" for line in rest)
