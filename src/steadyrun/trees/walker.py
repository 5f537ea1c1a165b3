"""The engine that asks the questions in order, follows edges and stops at the first fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.questions.form import CANNOT_TELL, FAULT, GRADES, SUSPECT, Answer, Limits, Question, explained
from steadyrun.questions.form import Changes as Changes

FAILED = "failed"  # the outcome of a question that raised an exception


@dataclass(frozen=True)
class Asked:
    """A question that was asked, and its answer."""

    question: Question
    answer: Answer
    changed: Mapping[str, float]
    because_of: str = ""  # the question whose edge led here
    also: Asked | None = None  # the answer of the other source about the same cause: preflight, or the record
    source: str = ""  # "trial" if a trial of the program has decided it

    @property
    def panel(self) -> int | None:
        """The panel that shows the answer."""
        return self.question.panel if self.answer.panel is None else self.answer.panel


@dataclass(frozen=True)
class Walk:
    """The questions in the order they were asked, and those that were not reached."""

    path: tuple[Asked, ...]
    not_reached: tuple[Question, ...]
    changes: Changes = field(default_factory=dict)

    @property
    def limits(self) -> Limits:
        """The limits of this walk, for other code that judges the same run."""
        return Limits((), None, self.changes)

    @property
    def leaf(self) -> Asked | None:
        """The first fault."""
        return next((asked for asked in self.path if asked.answer.kind == FAULT), None)


def walk(
    questions: Mapping[str, Question],
    run: Any,
    changes: Changes,
    *,
    go_on: bool = False,
    asking: Callable[[Question], None] = lambda _: None,
) -> Walk:
    """Ask the questions in order. The first fault ends the walk, unless `go_on`; audits are still asked.

    A finding whose outcome has an edge is a symptom: the questions behind the edge are asked first. If one of them
    finds a fault, it is the leaf and the symptom becomes a note. A suspect may also explain a suspect.
    """
    engine = _Engine(questions, run, changes, go_on)
    ended = False
    for code, question in questions.items():
        if ended and not question.always:
            continue
        asking(question)
        ended |= engine.visit(code) and not go_on
    path = tuple(engine.path)
    reached = {asked.question.code for asked in path}
    return Walk(path, tuple(question for code, question in questions.items() if code not in reached), changes)


class _Engine:
    def __init__(self, questions: Mapping[str, Question], run: Any, changes: Changes, go_on: bool) -> None:
        self._questions = questions
        self._run = run
        self._changes = changes
        self._go_on = go_on
        self._visited: set[str] = set()
        self.path: list[Asked] = []

    def visit(self, code: str, because_of: str = "") -> bool:
        """Ask a question and those behind its edge, each once; return whether a fault was found."""
        if code in self._visited:
            return False
        self._visited.add(code)
        question = self._questions[code]
        changed = self._changes.get(code, {})
        answer = self._answer(question, changed)
        index = len(self.path)
        self.path.append(Asked(question, answer, changed, because_of))
        if answer.kind not in GRADES or not answer.edge:
            return answer.kind == FAULT
        causes = self._look_for_causes(answer.edge, code)
        if not (cause := causes.get(FAULT) or (causes.get(SUSPECT) if answer.kind == SUSPECT else None)):
            return answer.kind == FAULT
        self.path[index] = Asked(question, explained(answer, cause), changed, because_of)
        return FAULT in causes

    def _answer(self, question: Question, changed: Mapping[str, float]) -> Answer:
        """The answer; an exception becomes "cannot tell", so that the other questions are still asked."""
        try:
            return question.ask(self._run, changed, self._changes)
        except UsageError:
            raise
        except Exception as problem:
            why = f"this question failed with {type(problem).__name__}: {problem}"
            how = "this is a bug in steadyrun: please report it with the run's manifest"
            return Answer(CANNOT_TELL, FAILED, why, missing=("an answer",), how_to_record=how)

    def _look_for_causes(self, edge: tuple[str, ...], symptom: str) -> dict[str, str]:
        """By grade: the first question behind the edge that finds a fault, and the first that finds a suspect."""
        causes: dict[str, str] = {}
        for target in edge:
            for code in [code for code in self._questions if code == target or code.startswith(f"{target}.")]:
                start = len(self.path)
                found_fault = self.visit(code, symptom)
                for asked in self.path[start:]:
                    causes.setdefault(asked.answer.kind, asked.question.code)
                if found_fault and not self._go_on:
                    return causes
        return causes
