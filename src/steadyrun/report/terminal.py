"""A report as a tree for a terminal, and as the same tree in plain text."""

from __future__ import annotations

import io
import shlex
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS, SUSPECT
from steadyrun.report import phrases
from steadyrun.report.comparison import Comparison, sentences
from steadyrun.report.two_sources import WITHOUT_PAGE

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

_STYLES = {"healthy": "green", PASS: "green", FAULT: "bold red", NOTE: "yellow", CANNOT_TELL: "cyan"}
_STYLES |= {SUSPECT: "bold dark_orange", NOT_APPLICABLE: "dim"}
_SIGNS = {"green": ("●", "green"), "amber": ("●", "yellow"), "red": ("●", "bold red"), "unknown": ("○", "dim")}
_UNWRAPPED = 1_000_000  # columns of what is no terminal: a line stays a line


def plain(report: Report, comparison: Comparison | None = None, program: str = "steadyrun") -> str:
    """The whole report without colour and without wrapped lines."""
    console = Console(file=io.StringIO(), width=_UNWRAPPED, color_system=None, highlight=False, legacy_windows=False)
    show(console, report, comparison, program)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def show(console: Console, report: Report, comparison: Comparison | None = None, program: str = "steadyrun") -> None:
    """Print the report: the path walked, the fault and its fix, what else there is to know, what to type next."""
    sections = [
        _head(report),
        _signs(report),
        _path(report),
        _headline(report),
        _list("follows from it", phrases.consequences(report)),
        _list("beside it, not explained by it", phrases.beside(report)),
        _list("also suspect", phrases.suspects(report)),
        _list("incidents", phrases.happened(report)),
        _list("announced while it ran", phrases.announced(report), whole=True),
        _notes(report),
        _unread(report),
        _untold(report),
        _after(comparison),
    ]
    for section in sections:
        if section is not None:
            console.print(section)
    for command in _next(report, program):
        console.print(command, soft_wrap=True)


def change_line(report: Report, asked: Asked) -> str:
    """One answer as one line of a log."""
    return f"{_when(report)}: {_answer(asked).plain}"


def verdict_line(report: Report) -> str:
    """The verdict as one line of a log."""
    verdict = f"{phrases.SYMBOLS[report.verdict]} {phrases.verdict(report)}"
    return f"{_when(report)}: {verdict} ({phrases.one_line(report.state)})"


def _when(report: Report) -> str:
    return "no steps" if report.last_step is None else f"step {report.last_step}"


def _head(report: Report) -> Text:
    return Text.assemble(
        (phrases.one_line(report.run), "bold"),
        f" ({phrases.standing(report)}): ",
        (phrases.with_symbol(report.verdict), _STYLES[report.verdict]),
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


def _signs(report: Report) -> Tree | None:
    """The vital signs, each with its colour as a word as well: a terminal may have no colours."""
    lines = phrases.signs(report)
    if not lines:
        return None
    tree = Tree(Text("vital signs", "bold"))
    for colour, line in lines:
        dot, style = _SIGNS[colour]
        word = "" if colour == "unknown" else f" {colour}"
        tree.add(Text.assemble((f"{dot}{word} ", style), line))
    return tree


def _answer(asked: Asked) -> Text:
    kind = asked.answer.kind
    name = phrases.one_line(phrases.title(asked))
    return Text.assemble(
        (f"{phrases.SYMBOLS[kind]} {name}, {phrases.word(kind)}", _STYLES[kind]), f": {phrases.message(asked)}"
    )


def _headline(report: Report) -> Tree:
    """The verdict; a fault with everything that belongs to it."""
    tree = Tree(Text(f"{phrases.SYMBOLS[report.verdict]} {phrases.verdict(report)}", _STYLES[report.verdict]))
    leaf = report.headline
    if leaf is None:
        return tree
    facts = {
        "means": phrases.meaning(leaf),
        "evidence": phrases.message(leaf) if leaf.answer.kind == SUSPECT else "",
        "how likely": phrases.likelihood(leaf),
        "measured": phrases.figures(leaf.answer.measured),
        "seen on": "" if leaf.panel is None else f"panel {leaf.panel}",
    }
    for name, text in facts.items():
        if text:
            tree.add(Text(f"{name}: {text}"))
    for limit in phrases.limits(leaf):
        tree.add(Text(f"limit: {limit}"))
    if leaf.answer.experiment:
        tree.add(Text.assemble(("to decide: ", "bold"), phrases.one_line(leaf.answer.experiment)))
    if leaf.answer.fix:
        tree.add(Text.assemble(("fix: ", "bold"), phrases.one_line(leaf.answer.fix)))
    return tree


def _notes(report: Report) -> Tree | None:
    return _list("notes, unusual but no fault", [phrases.advice(asked) for asked in phrases.independent(report)])


def _unread(report: Report) -> Tree | None:
    return _list("could not be read", list(report.damage))


def _untold(report: Report) -> Tree | None:
    return _list("to tell more", phrases.remedies(report))


def _after(comparison: Comparison | None) -> Tree | None:
    if comparison is None:
        return None
    lines = [f"{symbol} {sentence}" for symbol, sentence in sentences(comparison)]
    return _list(f"compared with {comparison.run}", lines)


def _list(heading: str, lines: list[str], *, whole: bool = False) -> Tree | None:
    if not lines:
        return None
    tree = Tree(Text(phrases.one_line(heading), "bold"))
    for line in lines if whole else phrases.bounded(lines):
        tree.add(Text(phrases.one_line(line)))
    return tree


def _next(report: Report, program: str) -> list[Text]:
    """What to type next: about the fault, or about the first question that keeps a run from being called healthy."""
    codes = [report.headline.question.code] if report.headline is not None else list(report.unanswered[:1])
    codes = [code for code in codes if code[:1] not in WITHOUT_PAGE]
    commands = [f"{program} {report.trial}"] if report.trial else []
    commands += [f"{program} explain {code}" for code in codes]
    if report.leaf is not None:
        whole = f"check NEW_RUN --after {shlex.quote(report.run)}" if report.command == "check" else ""
        mended = report.again or whole
        commands += [f"{program} {mended}"] if mended else []
    return [Text("next", "bold"), *(Text(f"  {phrases.one_line(command)}") for command in commands)] if commands else []
