"""`steadyrun explain`: the page of a question in the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from steadyrun.cli.messages import as_typed, fail, out
from steadyrun.errors import UsageError

if TYPE_CHECKING:
    from steadyrun.questions.form import Question

WIDEST = 100


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            help="A question such as C2.1 or A3.1, a section such as C2, or `tree`. Default: all questions."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a question: what it checks, why, its limits and its fixes.

    \b
    Examples:
      steadyrun explain            all questions, in the order they are asked
      steadyrun explain C2.1       one question
      steadyrun explain P3.4       one probe of preflight
      steadyrun explain P3.2       the same as A3.1: former codes still work
      steadyrun explain C2         the questions of one section
      steadyrun explain tree       the decision trees with their edges
      steadyrun explain C2.1 --json | jq .thresholds

    The page of a question lists the series it needs and how to record them,
    every answer it can give with its fix, the source of every limit, and
    what healthy and faulty runs measured. docs/questions has the same pages.

    \b
    Exit codes: 0 shown, 2 no such question.
    """
    from steadyrun.report.limits import everything, question_named
    from steadyrun.report.question_page import section_named

    if code is not None and code.lower() in {"tree", "trees"}:
        _show_trees(as_json)
        return
    several = list(everything().values()) if code is None else section_named(code)
    if several:
        _show_list(several, as_json)
        return
    assert code is not None
    try:
        _show_page(question_named(code), as_json)
    except UsageError as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} explain")


def _show_trees(as_json: bool) -> None:
    from steadyrun.report.file_formats import dumps
    from steadyrun.report.tree_drawing import HOW_TO_READ, all_drawn
    from steadyrun.trees import TREES

    if as_json:
        trees = {
            name: [{"code": question.code, "name": question.name, "edges": question.edges} for question in tree]
            for name, tree in TREES.items()
        }
        out(dumps(trees) + "\n")
        return
    out("\n".join([*_wrapped(HOW_TO_READ, "", ""), "", *all_drawn()]) + "\n")


def _show_list(questions: list[Question], as_json: bool) -> None:
    from steadyrun.report.file_formats import dumps
    from steadyrun.report.question_page import SECTIONS, page_as_dict, section_of

    if as_json:
        out(dumps([page_as_dict(question) for question in questions]) + "\n")
        return
    lines, last = [], ""
    for question in questions:
        if section_of(question) != last:
            last = section_of(question)
            lines += ["", f"{last} {SECTIONS.get(last, '')}".rstrip()]
        lines += _wrapped(f"{question.code} {question.name}: {question.asks}", "  ", "       ")
    out("\n".join(lines[1:]) + "\n")


def _show_page(question: Question, as_json: bool) -> None:
    from steadyrun.report.file_formats import dumps
    from steadyrun.report.question_page import entries, page_as_dict, question_page

    if as_json:
        out(dumps(page_as_dict(question)) + "\n")
        return
    lines = [_bold(f"{question.code} {question.name}")]
    for part in question_page(question):
        lines += ["", _bold(part.heading), *(line for entry in entries(part) for line in _wrapped(*entry))]
    out("\n".join(lines) + "\n")


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    """Lines that fit the terminal; a single line if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return [f"{first}{text}"]
    width = min(WIDEST, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text,
        max(40, width),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _bold(text: str) -> str:
    plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return text if plain else typer.style(text, bold=True)
