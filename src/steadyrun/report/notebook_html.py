"""A report as HTML for a notebook: one self-contained element that reads well on light and dark pages."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from steadyrun.questions.form import CANNOT_TELL, FAULT, NOT_APPLICABLE, NOTE, PASS
from steadyrun.report import phrases

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

# Middle tones: readable on white and on black. The word beside them says the same.
_COLOURS = {"healthy": "#1f9d55", PASS: "#1f9d55", FAULT: "#e0433f", NOTE: "#b8860b", CANNOT_TELL: "#3c8dbc"}
_COLOURS |= {NOT_APPLICABLE: "#888888"}
_CELL = 'style="text-align:left;vertical-align:top;padding:2px 10px 2px 0"'


def html(report: Report) -> str:
    """The verdict and the fix, the notes, what is missing; the walk folded away."""
    parts = [
        f"<p>{_mark(report.verdict, phrases.verdict(report))}<br>"
        f"<code>{_safe(report.run)}</code> ({escape(phrases.standing(report))})</p>",
        _leaf(report.headline) if report.headline else "",
        _list("Follows from it", phrases.consequences(report)),
        _list("Beside it, not explained by it", phrases.beside(report)),
        _list("Incidents", phrases.happened(report)),
        _list("Announced while it ran", phrases.announced(report), whole=True),
        _list("Notes, unusual but no fault", phrases.notes(report)),
        _list("Could not be read", list(report.damage)),
        _list("To tell more", phrases.remedies(report)),
        _walk(report),
    ]
    return f'<div style="line-height:1.4">{"".join(parts)}</div>'


def _safe(text: str) -> str:
    return escape(phrases.one_line(text))


def _mark(kind: str, text: str) -> str:
    return f'<strong style="color:{_COLOURS[kind]}">{phrases.SYMBOLS[kind]} {_safe(text)}</strong>'


def _leaf(leaf: Asked) -> str:
    facts = {
        "found": leaf.answer.message,
        "means": phrases.meaning(leaf),
        "measured": phrases.figures(leaf.answer.measured),
        "limits": "; ".join(phrases.limits(leaf)),
        "fix": leaf.answer.fix,
    }
    rows = [f"<tr><td {_CELL}>{name}</td><td {_CELL}>{_safe(text)}</td></tr>" for name, text in facts.items() if text]
    return f"<table>{''.join(rows)}</table>"


def _list(heading: str, lines: list[str], *, whole: bool = False) -> str:
    if not lines:
        return ""
    items = "".join(f"<li>{_safe(line)}</li>" for line in (lines if whole else phrases.bounded(lines)))
    return f"<p>{heading}</p><ul>{items}</ul>"


def _walk(report: Report) -> str:
    rows = "".join(
        f"<tr><td {_CELL}>{_safe(asked.question.code)}</td><td {_CELL}>{_safe(asked.question.name)}</td>"
        f"<td {_CELL}>{_mark(asked.answer.kind, phrases.word(asked.answer.kind))}</td>"
        f"<td {_CELL}>{_safe(phrases.message(asked))}</td></tr>"
        for asked in report.walk.path
    )
    left_out = phrases.not_reached(report)
    return f"<details><summary>The walk</summary><table>{rows}</table>{_safe(left_out)}</details>"
