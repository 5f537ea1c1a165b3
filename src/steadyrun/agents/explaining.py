"""The tool `explain`: what a question asks, why, its limits and its fixes."""

from __future__ import annotations

from steadyrun.agents.bounding import Answer
from steadyrun.agents.problems import NO_QUESTION, Problem
from steadyrun.errors import UsageError
from steadyrun.questions.form import Question
from steadyrun.report.naming import everything, question_named
from steadyrun.report.page import SECTIONS, entries, page, section


def explain(code: str = "") -> Answer:
    """The page of a question; of a section its questions; without a code the sections."""
    if not code:
        return {
            "sections": [
                {"section": name, "about": about, "questions": [each.code for each in section(name)]}
                for name, about in SECTIONS.items()
            ]
        }
    several = section(code)
    if several:
        return {"questions": [{"code": each.code, "name": each.name, "asks": each.asks} for each in several]}
    try:
        question = question_named(code)
    except UsageError as problem:
        known = ", ".join(everything())
        raise Problem(NO_QUESTION, str(problem).partition(";")[0], f"there are: {known}") from None
    return {"code": question.code, "name": question.name, "text": _text(question)}


def _text(question: Question) -> str:
    parts = [f"{part.heading}\n" + "\n".join(f"{f}{text}" for text, f, _ in entries(part)) for part in page(question)]
    return "\n\n".join(parts)
