"""A report as a tree for a terminal, and as the same tree in plain text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS, SUSPECT
from steadyrun.report import phrases
from steadyrun.report.learned_text import marked
from steadyrun.report.summary import Section, answer, sections
from steadyrun.text import counted

if TYPE_CHECKING:
    from steadyrun.program.supervision import Example
    from steadyrun.report.comparison import Comparison
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

_STYLES = {"healthy": "green", PASS: "green", FAULT: "bold red", NOTE: "yellow", CANNOT_TELL: "cyan"}
_STYLES |= {SUSPECT: "bold dark_orange", NOT_APPLICABLE: "dim"}
_SIGNS = {"green": ("✓", "green"), "amber": ("!", "yellow"), "red": ("✗", "bold red"), "unknown": ("○", "dim")}
_UNWRAPPED = 1_000_000  # columns of a file or a pipe: a line stays a line


def plain(report: Report, comparison: Comparison | None = None, program: str = "steadyrun") -> str:
    """The whole report without colour and without wrapped lines."""
    console = Console(file=io.StringIO(), width=_UNWRAPPED, color_system=None, highlight=False, legacy_windows=False)
    show(console, report, comparison, program)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def show(console: Console, report: Report, comparison: Comparison | None = None, program: str = "steadyrun") -> None:
    """Print the report: the answer, the findings with their fixes, the vital signs, what to type next.

    The walk is printed before them if it is asked for.
    """
    console.print(_head(report))
    if report.verbose or report.whole:
        console.print(_path(report))
    if report.headline is None:
        console.print(Text(answer(report)))
    for section in sections(report, comparison, program):
        _print_section(console, section)
    if report.verbose or report.whole:
        show_examples(console, report.learned_text)


def show_examples(console: Console, examples: Sequence[Example]) -> None:
    """Print examples: the learned text is green, and in double brackets where there is no colour."""
    for number, example in enumerate(examples, 1):
        if not console.is_terminal or console.no_color:
            console.print(Text(f"example {number} ([[learned]])", "bold"))
            console.print(Text(marked(example)), soft_wrap=True)
            continue
        text = Text()
        for part in example:
            text.append(part.text, "green" if part.learned else "dim")
        console.print(Text(f"example {number}", "bold"), Text("learned", "green"), Text("masked", "dim"))
        console.print(text, soft_wrap=True)


def _print_section(console: Console, section: Section) -> None:
    """A heading with its lines below it; a single text stands beside its heading. Commands are never wrapped."""
    if len(section.lines) == 1 and not section.lines[0][0]:
        _print_line(console, section.title, section.lines[0][1], indent=0, wrapped=section.title != "next")
        return
    console.print(Text(section.title, _STYLES.get(section.kind, "bold")))
    for label, text in section.lines:
        _print_line(console, label, text, wrapped=section.title != "next")


def _print_line(console: Console, label: str, text: str, indent: int = 2, wrapped: bool = True) -> None:
    """A label and its text, with every further line below the first."""
    sign, style = _SIGNS.get(label, (f"{label}:" if label.isascii() and label else label, "bold"))
    below = indent + (len(sign) + 1 if sign else 0)
    lines = Text(text).wrap(console, max(20, console.width - below)) if wrapped else [Text(text)]
    for number, line in enumerate(lines or [Text("")]):
        line.rstrip()
        lead = Text.assemble(" " * indent, (sign, style), " ") if sign and number == 0 else Text(" " * below)
        console.print(Text.assemble(lead, line), soft_wrap=True)


def change_line(report: Report, asked: Asked) -> str:
    """One answer as one line of a log."""
    return f"{_when(report)}: {_answer(asked).plain}"


def verdict_line(report: Report) -> str:
    """The verdict as one line of a log."""
    verdict = f"{phrases.SYMBOLS[report.verdict]} {phrases.verdict(report)}"
    return f"{_when(report)}: {verdict} ({phrases.state(report)})"


def _when(report: Report) -> str:
    return "no steps" if report.last_step is None else f"step {report.last_step}"


def _head(report: Report) -> Text:
    return Text.assemble(
        (phrases.with_symbol(report.verdict), _STYLES[report.verdict]),
        ("  " + phrases.one_line(report.run), "bold"),
        f"  {phrases.standing(report)}",
        (f"  {counted(len(report.incidents), 'incident')}" if report.incidents else "", "yellow"),
    )


def _path(report: Report) -> Tree:
    tree = Tree(Text("the walk", "bold"))
    branches: dict[str, Tree] = {}
    audited = phrases.quiet(report)
    for asked in report.walk.path:
        if phrases.is_quiet(report, asked) or phrases.is_folded(report, asked) or not phrases.arises(asked):
            continue
        branches[asked.question.code] = branches.get(asked.because_of, tree).add(_answer(asked))
    for line in (phrases.not_arising(report), audited, phrases.not_reached(report)):
        if line:
            tree.add(Text(line, "dim"))
    return tree


def _answer(asked: Asked) -> Text:
    kind = asked.answer.kind
    name = phrases.one_line(phrases.title(asked))
    return Text.assemble(
        (f"{phrases.SYMBOLS[kind]} {name}, {phrases.word(kind)}", _STYLES[kind]), f": {phrases.message(asked)}"
    )
