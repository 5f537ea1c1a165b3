"""A report as Markdown, for a comment on a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from steadyrun.report import phrases
from steadyrun.report.comparison import Comparison, sentences

if TYPE_CHECKING:
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$&])")


def markdown(report: Report, comparison: Comparison | None = None) -> str:
    """The verdict and the fix first; the whole walk folded away."""
    head = f"### {phrases.SYMBOLS[report.verdict]} {escape(phrases.verdict(report))}"
    parts = [
        [head],
        [f"{code(report.run)} ({escape(phrases.standing(report))})"],
        _leaf(report.headline) if report.headline else [],
        _list("Follows from it", phrases.consequences(report)),
        _list("Beside it, not explained by it", phrases.beside(report)),
        _list("Incidents", phrases.happened(report)),
        _list("Announced while it ran", phrases.announced(report), whole=True),
        _list("Notes, unusual but no fault", phrases.notes(report)),
        _list("Could not be read", list(report.damage)),
        _list("To tell more", phrases.remedies(report)),
        _after(comparison),
        _walk(report),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def literal(text: str) -> str:
    """Text as it is: no markup, no table cell, nobody mentioned."""
    return _SPECIAL.sub(r"\\\1", text).replace("@", "@<!-- -->")


def escape(text: str) -> str:
    """Text of a run as it is."""
    return literal(phrases.one_line(text))


def code(text: str) -> str:
    """A code span whatever the text holds; table cells need their pipes escaped even there."""
    safe = phrases.one_line(text)
    longest = max((len(run) for run in re.findall("`+", safe)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {safe} {fence}" if longest or not safe.strip() else f"`{safe}`"


def _leaf(leaf: Asked) -> list[str]:
    facts = [
        ("", escape(leaf.answer.message)),
        ("Means", escape(phrases.meaning(leaf))),
        ("Measured", escape(phrases.figures(leaf.answer.measured))),
        ("Limits", escape("; ".join(phrases.limits(leaf)))),
        ("Fix", escape(leaf.answer.fix)),
    ]
    return [f"- **{name}:** {text}" if name else f"{text}\n" for name, text in facts if text]


def _list(heading: str, lines: list[str], *, whole: bool = False) -> list[str]:
    shown = lines if whole else phrases.bounded(lines)
    return [f"**{heading}**\n", *(f"- {escape(line)}" for line in shown)] if lines else []


def _after(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return []
    lines = phrases.bounded([f"{symbol} {sentence}" for symbol, sentence in sentences(comparison)])
    return [f"**Compared with** {code(comparison.run)}\n", *(f"- {escape(line)}" for line in lines)]


def _walk(report: Report) -> list[str]:
    rows = [
        f"| {escape(asked.question.code)} | {escape(asked.question.name)} | {phrases.with_symbol(asked.answer.kind)} "
        f"| {escape(phrases.message(asked))} |"
        for asked in report.walk.path
    ]
    left_out = phrases.not_reached(report)
    return [
        "<details><summary>The walk</summary>\n",
        "| code | question | answer | found |",
        "|---|---|---|---|",
        *rows,
        *([f"\n{escape(left_out)}"] if left_out else []),
        "\n</details>",
    ]
