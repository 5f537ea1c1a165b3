"""The marks, caption and state of a panel, from the report and the event log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from steadyrun.panels import panel as model
from steadyrun.panels.panel import Mark, Panel
from steadyrun.questions.form import FAULT, GRADES, NOT_APPLICABLE, PASS, SUSPECT
from steadyrun.records import Event
from steadyrun.report import phrases
from steadyrun.report.report import Report
from steadyrun.signals.run_signals import Signals
from steadyrun.trees.walker import Asked

# The panel on which an event is marked. Checkpoints are not marked: there are many, and they are normal.
_EVENTS = {
    "resume": 1,
    "rollback": 1,
    "crash": 1,
    "incident": 1,
    "out-of-memory": 1,
    "stopped": 1,
    "note": 1,
    "rows-lost": 1,
    "optimizer-replaced": 2,
    "moved-without-optimizer": 3,
    "clip-after-step": 3,
    "clip-before-backward": 3,
    "clip-before-unscale": 3,
}
_MOST = 12  # marks of one kind of event


def finished(panel: Panel, run: Signals, report: Report, caption: str) -> Panel:
    """The panel with its marks, state and caption; `caption` is used if there is no finding."""
    findings = on_panel(report, panel.number)
    kinds = {asked.answer.kind for asked in findings}
    return replace(
        panel,
        marks=tuple(_marks(run, report, panel.number, findings)),
        trouble=next((kind for kind in GRADES if kind in kinds), model.NONE),
        first_fault=report.headline is not None and report.headline in findings,
        judged=_judged(report, panel.number),
        caption=_caption(findings) or caption,
    )


def _judged(report: Report, number: int) -> bool:
    """Whether any question of the panel was answered, or it has no questions."""
    kinds = {asked.answer.kind for asked in report.walk.path if asked.panel == number}
    return not kinds or bool(kinds & {PASS, *GRADES}) or kinds == {NOT_APPLICABLE}


def on_panel(report: Report, number: int) -> list[Asked]:
    """The findings on a panel, the most severe first, else in the order of the questions."""
    cited = [asked for asked in report.walk.path if asked.panel == number]
    return [asked for kind in GRADES for asked in cited if asked.answer.kind == kind]


def odd_ranks(report: Report, world: int) -> tuple[tuple[int, ...], str]:
    """The ranks that the headline names, or else the first finding that names any, and its grade.

    If it names all of them, none is odd.
    """
    headline = [] if report.headline is None else [report.headline]
    graded = [asked for kind in (FAULT, SUSPECT) for asked in report.walk.path if asked.answer.kind == kind]
    named = next((asked.answer for asked in [*headline, *graded] if asked.answer.ranks), None)
    return ((), "") if named is None or len(named.ranks) >= world else (named.ranks, named.kind)


def _caption(findings: list[Asked]) -> str:
    if not findings:
        return ""
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{findings[0].question.code}: {phrases.message(findings[0])}{more}"


def _marks(run: Signals, report: Report, number: int, findings: list[Asked]) -> Iterator[Mark]:
    for asked in findings:
        if (step := asked.answer.step) is not None:
            code = phrases.one_line(asked.question.code)
            yield Mark(step, step, asked.answer.kind, code, f"{phrases.title(asked)}: {phrases.message(asked)}")
    yield from _marked_by_monitor(run, report, number)
    for kind in (kind for kind, panel in _EVENTS.items() if panel == number):
        dated = [event for event in run.events(kind) if event.step is not None]
        for event in dated[-_MOST:]:
            yield _mark(event, "incident", kind, _said(event) + _proved(event, report))


def _marked_by_monitor(run: Signals, report: Report, number: int) -> Iterator[Mark]:
    """Findings of the live monitor that are not in the report: a passed warning, a fault of an earlier attempt."""
    known = {asked.question.code for asked in report.walk.path if asked.answer.kind in {FAULT, SUSPECT}}
    panels = {asked.question.code: asked.panel for asked in report.walk.path}
    for event in [*run.events("fault"), *run.events("suspect"), *run.events("warning")][-_MOST:]:
        code = str(event.fields.get("code", ""))
        if event.step is not None and code not in known and panels.get(code) == number:
            yield _mark(event, "warning", phrases.one_line(code), f"announced during the run: {_said(event)}")


def _proved(event: Event, report: Report) -> str:
    """The result of a replay of the event's incident."""
    outcomes = [
        incident.found(report.run) for incident in report.incidents if incident.step == event.step and incident.replay
    ]
    return f" {outcomes[0]}" if outcomes and event.kind == "incident" else ""


def _mark(event: Event, kind: str, code: str, label: str) -> Mark:
    step = event.step or 0
    return Mark(step, step, kind, code, phrases.one_line(label))


def _said(event: Event) -> str:
    texts = [str(event.fields[key]) for key in ("message", "text", "error", "reason", "why") if event.fields.get(key)]
    return phrases.one_line(f"{event.kind}: {texts[0]}" if texts else event.kind)
