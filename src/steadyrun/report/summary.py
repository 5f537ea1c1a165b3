"""A report in sections: what was found with its fix, the vital signs, what to type next. Forms only lay them out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from steadyrun.questions.form import FAULT, GRADES, NOTE
from steadyrun.report import phrases
from steadyrun.report.comparison import Comparison, sentences
from steadyrun.report.two_sources import WITHOUT_PAGE

if TYPE_CHECKING:
    from steadyrun.report.incidents import IncidentCard
    from steadyrun.report.report import Report
    from steadyrun.trees.walker import Asked

LENGTH = 180  # characters of a text in brief: two lines of a terminal with 100 columns
LINE = 85  # characters of a text that must stay on one line
FINDINGS = 3
ENTRIES = 2  # of each further list
LAUNCHER = "torchrun "  # begins a command that starts several ranks
GREEN_SIGNS = 2  # in full beside a finding or an incident; the others by name


@dataclass(frozen=True)
class Section:
    """A heading, and lines of a label and a text. `kind` is the grade or the colour of what it is about."""

    title: str
    lines: tuple[tuple[str, str], ...]
    kind: str = ""


def sections(report: Report, comparison: Comparison | None = None, program: str = "steadyrun") -> list[Section]:
    """The report from its answer to what to type next; in brief, unless all of it is asked for."""
    whole = report.verbose or report.whole
    parts = [
        *_findings(report, whole),
        _incidents(report, whole),
        Section("announced during the run", tuple(("", fault) for fault in phrases.announced(report))),
        Section("not answered", _rows(_few(_unanswered(report), whole))),
        _signs(report, whole),
        _list("noted", _notes(report, whole), whole),
        _list("not read", list(report.damage), whole),
        _list("to learn more", phrases.remedies(report), whole),
        _after(comparison),
        Section("next", tuple(("", command) for command in _next(report, program, whole))),
    ]
    return [_shortened(part, whole) for part in parts if part.lines or part.kind]


def answer(report: Report) -> str:
    """Why the verdict is what it is, if no finding says so."""
    text = phrases.verdict(report).partition(": ")[2]
    return f"{text[:1].upper()}{text[1:]}."


def short(text: str, length: int = LENGTH) -> str:
    """The first sentences of a text that fit, or the first words."""
    if len(text) <= length:
        return text
    end = text.rfind(". ", 0, length)
    if end > 0:
        return text[: end + 1]
    return text[: text.rfind(" ", 0, length)].rstrip(",;: ") + " …"


def _findings(report: Report, whole: bool) -> Iterator[Section]:
    """The cause to begin with, with all that belongs to it; then what stands beside it."""
    first = report.headline
    if first is None:
        return
    details = [
        ("evidence", phrases.message(first)),
        ("seen on", phrases.likelihood(first).removeprefix("seen on ")),
        ("to decide", phrases.one_line(first.answer.experiment)),
        ("fix", phrases.one_line(first.answer.fix)),
        ("leads to", "; ".join(_few(phrases.consequences(report), whole))),
    ]
    if whole:
        panel = "" if first.panel is None else f"panel {first.panel}"
        details += [("measured", phrases.figures(first.answer.measured)), ("drawn on", panel)]
        details += [("limit", limit) for limit in phrases.limits(first)]
    yield Section(_what(first, whole), tuple((label, text) for label, text in details if text), first.answer.kind)
    others = [asked for asked in _others(report) if asked is not first]
    for asked in others if whole else others[: FINDINGS - 1]:
        lines = [("evidence", phrases.message(asked)), ("to decide", phrases.one_line(asked.answer.experiment))]
        lines += [("fix", phrases.one_line(asked.answer.fix))]
        if not whole:
            lines = [(label, short(text, LINE)) for label, text in lines[:1]]
        yield Section(_what(asked, whole), tuple(line for line in lines if line[1]), asked.answer.kind)
    if not whole and len(others) >= FINDINGS:
        yield Section(f"{len(others) - FINDINGS + 1} more findings", (), NOTE)


def _others(report: Report) -> list[Asked]:
    """Faults that the headline does not explain, and the other suspects; signs have lines of their own."""
    faults = [asked for asked in report.ranking.beside if asked.answer.kind == FAULT]
    suspects = [asked for asked in report.suspects if asked.question.code[:1] not in phrases.SIGNS]
    return [*faults, *(asked for asked in suspects if asked not in report.ranking.consequences)]


def _what(asked: Asked, whole: bool) -> str:
    """A finding as a heading, with the code and the step where to look."""
    where = "" if asked.answer.step is None else f", step {asked.answer.step}"
    what = phrases.meaning(asked) or asked.question.name
    found = f"{what if whole else short(what)} ({asked.question.code}{where})"
    return phrases.one_line(f"{phrases.SYMBOLS[asked.answer.kind]} {found}")


def _incidents(report: Report, whole: bool) -> Section:
    """What happened at which step; in brief the first incident with its cause, those with a proved cause before others.

    What the headline already says is left out.
    """
    if whole:
        return Section("incidents", _rows(phrases.happened(report)))
    above = None if report.headline is None else report.headline.answer.message
    codes = {asked.question.code for asked in report.walk.path if asked.answer.kind in GRADES}
    fresh = (card for card in report.incidents if card.why.partition(" ")[0] not in codes and card.cause != above)
    cards = sorted(fresh, key=lambda card: not card.proved)
    lines = [line for card in cards[:1] for line in _incident(card)]
    more = ", ".join(f"{card.kind} at step {card.step}" for card in cards[1 : 1 + ENTRIES])
    rest = len(cards) - 1 - ENTRIES
    lines += [("also", more + (f" and {rest} more" if rest > 0 else ""))] if more else []
    return Section("incidents", tuple((label, phrases.one_line(text)) for label, text in lines))


def _incident(card: IncidentCard) -> Iterator[tuple[str, str]]:
    where = card.where
    yield where, short(card.why, LINE - len(where))
    if card.blames_hardware:
        yield f"hardware, {card.hardware}", short(card.hardware_why, LENGTH - len("hardware, persistent"))
        yield "next", short(card.hardware_next, LINE)
    if card.proved:
        yield "cause, proved by replay", short(card.cause, LENGTH - 2 * len("cause, proved by replay"))
    if card.fix:
        yield "fix", short(card.fix, LINE)


def _unanswered(report: Report) -> list[str]:
    """Why the questions that keep a run from being called healthy have no answer."""
    needed = [asked for asked in report.walk.path if asked.question.code in report.unanswered]
    return [f"{phrases.title(asked)}: {phrases.message(asked)}" for asked in needed] if report.headline is None else []


def _notes(report: Report, whole: bool) -> list[str]:
    notes = phrases.independent(report)
    if whole:
        return [phrases.advice(asked) for asked in notes]
    return [f"{phrases.meaning(asked)} ({asked.question.code})" for asked in notes]


def _signs(report: Report, whole: bool) -> Section:
    """Each sign with its number; beside a finding or an incident the first green ones, and the others by name."""
    signs = phrases.signs(report, codes=whole)
    if whole or (report.headline is None and not report.incidents):
        return Section("vital signs", tuple((colour, short(text, LINE + 10)) for colour, text in signs))
    green = [text for colour, text in signs if colour == "green"]
    lines = [(colour, text) for colour, text in signs if colour not in {"green", "unknown"}]
    shown_ones = 0 if lines else GREEN_SIGNS
    lines += [("green", short(text, LINE + 10)) for text in green[:shown_ones]]
    names = [text.partition(":")[0] for text in green[shown_ones:]]
    lines += [("green", "; ".join(names))] if names else []
    return Section("vital signs", tuple(lines))


def _after(comparison: Comparison | None) -> Section:
    if comparison is None:
        return Section("", ())
    return Section(f"compared with {phrases.one_line(comparison.run)}", tuple(sentences(comparison)))


def _next(report: Report, program: str, whole: bool) -> Iterator[str]:
    """What to type: about the finding, or about the first question that keeps a run from being called healthy."""
    if report.trial:
        yield phrases.one_line(f"{program} {report.trial}")
    codes = [report.headline.question.code] if report.headline is not None else list(report.unanswered[:1])
    yield from (phrases.one_line(f"{program} explain {code}") for code in codes if code[:1] not in WITHOUT_PAGE)
    if report.leaf is not None:
        mended = report.again or (
            f"check NEW_RUN --after {shlex.quote(report.run)}" if report.command == "check" else ""
        )
        if mended:
            yield phrases.one_line(mended if mended.startswith(LAUNCHER) else f"{program} {mended}")
    if not whole and report.command == "check" and not report.again:
        yield phrases.one_line(f"{program} check {shlex.quote(report.run)} --verbose  # {phrases.counts(report)}")


def _list(title: str, texts: list[str], whole: bool) -> Section:
    """A list of texts; in brief a few of them in one line."""
    kept = _few(texts, whole)
    return Section(title, _rows(kept if whole or not kept else ["; ".join(kept)]))


def _rows(texts: list[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("", phrases.one_line(text)) for text in texts)


def _few(texts: list[str], whole: bool) -> list[str]:
    rest = len(texts) - ENTRIES
    return texts if whole or rest <= 1 else [*texts[:ENTRIES], f"{rest} more"]


def _shortened(section: Section, whole: bool) -> Section:
    if whole or section.title == "next":
        return section
    return Section(section.title, tuple((label, short(text)) for label, text in section.lines), section.kind)
