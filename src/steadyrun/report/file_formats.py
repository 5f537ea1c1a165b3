"""A report as JSON, as JUnit XML for CI systems, as Markdown for a comment, as HTML for a notebook."""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS, SUSPECT, Question
from steadyrun.report import phrases
from steadyrun.report.comparison import sentences
from steadyrun.report.learned_text import html_examples
from steadyrun.report.summary import Section, answer, sections
from steadyrun.store.jsonio import jsonable

if TYPE_CHECKING:
    from steadyrun.report.comparison import Comparison
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked


# A report as JSON: valid everywhere and in ASCII, whatever a run's names hold and a terminal can show.


def document(report: Report, comparison: Comparison | None = None) -> dict[str, Any]:
    """The documented form; `after` is there when two runs were compared."""
    return report.to_dict() | ({} if comparison is None else {"after": comparison.to_dict()})


def dumps(value: Any, *, indent: int | None = 2) -> str:
    return json.dumps(jsonable(value), indent=indent, allow_nan=False)


# A report as JUnit XML, which CI systems show: one test case per question.


Element = ElementTree.Element


def junit(report: Report, comparison: Comparison | None = None) -> str:
    """A fault is a failure, a suspect a failure of type `suspect`; what has no answer is skipped, with the reason."""
    cases = [_asked(asked) for asked in report.walk.path]
    cases += [_not_reached(question) for question in report.walk.not_reached]
    suite = Element("testsuite", _counts(report, cases))
    suite.extend(cases)
    if comparison is not None:
        lines = [f"{symbol} {sentence}" for symbol, sentence in sentences(comparison)]
        _add(suite, "system-out", "\n".join([f"compared with {phrases.one_line(comparison.run)}", *lines]))
    suites = Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'


def _counts(report: Report, cases: list[Element]) -> dict[str, str]:
    return {
        "name": phrases.one_line(f"steadyrun {report.command} {report.run}"),
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.find("skipped") is not None for case in cases)),
        "time": "0",
    }


def _asked(asked: Asked) -> Element:
    case, answer, message = _case(asked.question), asked.answer, phrases.message(asked)
    if answer.kind == FAULT:
        text = f"fix: {phrases.one_line(answer.fix)}\nlimits: {'; '.join(phrases.limits(asked))}"
        _add(case, "failure", text, message=message, type=phrases.one_line(answer.outcome))
    elif answer.kind == SUSPECT:
        text = f"to decide: {phrases.one_line(answer.experiment)}\nfix: {phrases.one_line(answer.fix)}"
        _add(case, "failure", text, message=message, type=SUSPECT)
    elif answer.kind in {CANNOT_TELL, NOT_APPLICABLE}:
        how = f"; to tell: {phrases.one_line(answer.how_to_record)}" if answer.how_to_record else ""
        _add(case, "skipped", message=f"{phrases.word(answer.kind)}: {message}{how}")
    else:
        _add(case, "system-out", f"{'note: ' if answer.kind == NOTE else ''}{message}")
    return case


def _not_reached(question: Question) -> Element:
    case = _case(question)
    _add(case, "skipped", message="not asked: the walk ends at the first fault (--all goes on)")
    return case


def _case(question: Question) -> Element:
    section = question.code.partition(".")[0]
    name = phrases.one_line(f"{question.code} {question.name}")
    return Element("testcase", classname=phrases.one_line(f"steadyrun.{section}"), name=name, time="0")


def _add(parent: Element, tag: str, text: str = "", **attributes: str) -> None:
    ElementTree.SubElement(parent, tag, attributes).text = text or None


# A report as Markdown, for a comment on a pull request.


_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$&])")


def markdown(report: Report, comparison: Comparison | None = None) -> str:
    """The verdict and the fix first; the whole walk folded away."""
    parts = [
        [f"### {phrases.with_symbol(report.verdict)}: {code(report.run)}"],
        [escaped(phrases.standing(report))],
        [escaped(answer(report))] if report.headline is None else [],
        *(_section(section) for section in sections(report, comparison)),
        _walk(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def literal(text: str) -> str:
    """Text as it is: no markup, no table cell, nobody mentioned."""
    return _SPECIAL.sub(r"\\\1", text).replace("@", "@<!-- -->")


def escaped(text: str) -> str:
    """Text of a run as it is."""
    return literal(phrases.one_line(text))


def code(text: str) -> str:
    """A code span whatever the text holds; table cells need their pipes escaped even there."""
    safe = phrases.one_line(text)
    longest = max((len(run) for run in re.findall("`+", safe)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {safe} {fence}" if longest or not safe.strip() else f"`{safe}`"


_DOTS = {"green": "🟢", "amber": "🟡", "red": "🔴", "unknown": "⚪"}


def _section(section: Section) -> list[str]:
    shown = code if section.title == "next" else escaped
    lines = [f"- {_label(label, '**{}:**')}{shown(text)}" for label, text in section.lines]
    return [f"**{escaped(section.title)}**\n", *lines]


def _label(label: str, form: str) -> str:
    """What stands before a line: the dot of a vital sign, the symbol of a change, or a word."""
    shown = _DOTS.get(label) or (form.format(label) if label.isascii() else label)
    return f"{shown} " if label else ""


def _walk(report: Report) -> list[str]:
    rows = [
        f"| {escaped(asked.question.code)} | {escaped(asked.question.name)} | {phrases.with_symbol(asked.answer.kind)} "
        f"| {escaped(phrases.message(asked))} |"
        for asked in filter(phrases.arises, report.walk.path)
    ]
    left_out = phrases.not_reached(report)
    return [
        "<details><summary>The walk</summary>\n",
        "| code | question | answer | found |",
        "|---|---|---|---|",
        *rows,
        *([f"\n{escaped(left_out)}"] if left_out else []),
        "\n</details>",
    ]


# A report as HTML for a notebook: one self-contained element that reads well on light and dark pages.


# Middle tones: readable on white and on black. The word beside them says the same.
_COLOURS = {
    "healthy": "#1f9d55",
    PASS: "#1f9d55",
    FAULT: "#e0433f",
    SUSPECT: "#d9731a",
    NOTE: "#b8860b",
    CANNOT_TELL: "#3c8dbc",
}
_COLOURS |= {NOT_APPLICABLE: "#888888"}
_CELL = 'style="text-align:left;vertical-align:top;padding:2px 10px 2px 0"'


def html(report: Report) -> str:
    """The verdict, the findings and the vital signs; the walk folded away."""
    parts = [
        f"<p>{_mark(report.verdict, phrases.word(report.verdict))} <code>{_safe(report.run)}</code> "
        f"{escape(phrases.standing(report))}</p>",
        f"<p>{_safe(answer(report))}</p>" if report.headline is None else "",
        *(_html_section(section) for section in sections(report)),
        _html_walk(report),
        _html_folded("what is learned of three examples", html_examples(report.learned_text)),
    ]
    return f'<div style="line-height:1.4">{"".join(parts)}</div>'


def _safe(text: str) -> str:
    return escape(phrases.one_line(text))


def _mark(kind: str, text: str) -> str:
    return f'<strong style="color:{_COLOURS[kind]}">{phrases.SYMBOLS[kind]} {_safe(text)}</strong>'


def _html_section(section: Section) -> str:
    tag = "code" if section.title == "next" else "span"
    lines = ((_label(label, "<strong>{}:</strong>"), _safe(text)) for label, text in section.lines)
    items = "".join(f"<li>{label}<{tag}>{text}</{tag}></li>" for label, text in lines)
    heading = f"<p><strong>{_safe(section.title)}</strong></p>"
    return f'{heading}<ul style="list-style:none;padding-left:1em">{items}</ul>'


def _html_folded(title: str, content: str) -> str:
    return f"<details><summary>{title}</summary>{content}</details>" if content else ""


def _html_walk(report: Report) -> str:
    rows = "".join(
        f"<tr><td {_CELL}>{_safe(asked.question.code)}</td><td {_CELL}>{_safe(asked.question.name)}</td>"
        f"<td {_CELL}>{_mark(asked.answer.kind, phrases.word(asked.answer.kind))}</td>"
        f"<td {_CELL}>{_safe(phrases.message(asked))}</td></tr>"
        for asked in filter(phrases.arises, report.walk.path)
    )
    left_out = phrases.not_reached(report)
    return f"<details><summary>The walk</summary><table>{rows}</table>{_safe(left_out)}</details>"
