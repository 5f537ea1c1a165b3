"""A report as JUnit XML, which CI systems show: one test case per question."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, Question
from steadyrun.report import phrases
from steadyrun.report.comparison import Comparison, sentences

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

Element = ElementTree.Element


def junit(report: Report, comparison: Comparison | None = None) -> str:
    """A fault is a failure; what cannot be told, does not apply or was not reached is skipped, with the reason."""
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
