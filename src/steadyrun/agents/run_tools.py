"""The tools that answer from one run or from the list of runs: `list_runs`, `check`, `events`, `explain`."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steadyrun.agents.bounded_json import Answer, figure, fitted, harmless, page, short
from steadyrun.agents.run_names import BAD_ARGUMENT, NO_QUESTION, Problem, find, name_of, without
from steadyrun.errors import UsageError
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOTE, Question
from steadyrun.records import Event
from steadyrun.report import limits
from steadyrun.report.comparison import compare
from steadyrun.report.json_text import document
from steadyrun.report.lookup import everything, question_named
from steadyrun.report.question_page import SECTIONS, entries, question_page, section
from steadyrun.report.report import Report, brief, check_with
from steadyrun.report.status import last_word, started
from steadyrun.store.discover import Root, RunPlace
from steadyrun.store.reader import open_run
from steadyrun.trees.walker import Asked

log = logging.getLogger("steadyrun.agents")

_UNREADABLE = "unreadable"


@dataclass(frozen=True)
class _ListedRun:
    location: RunPlace
    name: str
    began: float


def list_runs(root: Root, offset: int = 0, limit: int = 20) -> Answer:
    """One page of the list; only the runs on it are read."""
    listed = sorted((_listed(location) for location in root.runs()), key=lambda run: (-run.began, run.name))
    rows = [_row(run) for run in listed[offset : offset + limit]]

    def wrap(shown: list[Any]) -> Answer:
        return {"total": len(listed), "offset": offset, "runs": shown}

    return page(rows, offset, len(listed), wrap)


def _listed(location: RunPlace) -> _ListedRun:
    try:
        began = started(open_run(location.path).manifest)
    except Exception as problem:  # one strange run must not hide the others
        log.debug("reading %s failed: %s", location.name, problem)
        began = 0.0
    return _ListedRun(location, name_of(location), began)


def _row(run: _ListedRun) -> dict[str, Any]:
    try:
        view = open_run(run.location.path).as_of_now()
        state = view.state
        loss = view.series("loss") if "loss" in view.names() else None
        verdict, headline = last_word(view, state)
        return {
            "run": run.name,
            "state": short(state, 20),
            "started": _time(run.began),
            "last_step": view.last_step(),
            "last_loss": figure(float(loss.values[-1])) if loss is not None and len(loss) else None,
            "verdict": verdict or None,
            "headline": short(headline, 40) or None,
        }
    except Exception as problem:
        log.debug("reading %s failed: %s", run.name, problem)
        empty = dict.fromkeys(("last_step", "last_loss", "verdict", "headline"))
        return {"run": run.name, "state": _UNREADABLE, "started": _time(run.began), **empty}


def _time(began: float) -> str | None:
    known = 0 < began < 4e9
    return datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds") if known else None


# The tool `check`: the report of a run as `steadyrun check --json` has it, with the faults of the walk alone.
_SHORTENED = ("not_asked", "notes", "damage", "consequences", "walk", "beside")  # what is cut first comes first


def check(root: Root, run: str, all: bool = False, question: str = "", after: str = "") -> Answer:
    """The report of a run; with `after` compared with an earlier run, both walked past their first fault."""
    location, old = find(root, run), find(root, after) if after else None
    asked = _codes(question)
    report = _walk(location, all or old is not None)
    comparison = None if old is None else compare(report, _walk(old, True))
    whole = document(report, comparison) | {"run": name_of(location)}
    if old is not None:
        whole["after"] = harmless(whole["after"] | {"run": name_of(old)}, longest=200, items=20)
    return fitted(_shortened(whole, report, asked), _SHORTENED)


def _walk(location: RunPlace, go_on: bool) -> Report:
    """The walk, with the thresholds that the working directory changes, as on the command line."""
    try:
        changes = limits.changes({}, Path.cwd())
    except UsageError as problem:
        message = short(without(Path.cwd(), str(problem)), 300)
        raise Problem(BAD_ARGUMENT, message, "mend that file: it changes thresholds") from None
    return check_with(location.path, changes, go_on=go_on)


def _codes(question: str) -> set[str]:
    """The questions of which everything is wanted."""
    if not question:
        return set()
    try:
        return {named.code for named in section(question) or [question_named(question)]}
    except UsageError as problem:
        raise Problem(NO_QUESTION, str(problem).partition(";")[0], "explain without a code lists them all") from None


def _shortened(whole: dict[str, Any], report: Report, asked: set[str]) -> Answer:
    """Of the walk the faults, and the questions that were asked for; how many answers of each kind there are."""
    walk = [answered for answered in whole["walk"] if answered["answer"] == FAULT or answered["code"] in asked]
    unanswered = [question for question in whole["not_asked"] if question["missing"] or question["code"] in asked]
    kinds = Counter(answered["answer"] for answered in whole["walk"])
    counts = {kind: kinds[kind] for kind in (FAULT, NOTE, "pass", CANNOT_TELL, "not-applicable")}
    changed = {"walk": harmless(walk), "not_asked": harmless(unanswered)}
    unchanged = {key: harmless(value) for key, value in whole.items() if key not in changed}
    cut = {
        "walk": len(whole["walk"]) - len(walk),
        "not_asked": len(whole["not_asked"]) - len(unanswered),
    }
    answer = {key: changed.get(key, unchanged.get(key)) for key in whole}
    return answer | {
        "beside": harmless([_beside(fault) for fault in report.ranking.beside]),
        "answers": counts | {"not-reached": len(report.walk.not_reached)},
        "cut": {name: count for name, count in cut.items() if count},
    }


def _beside(asked: Asked) -> dict[str, Any]:
    """A fault of its own, which the headline does not explain, with its fix."""
    return brief(asked) | {"fix": asked.answer.fix}


# The tool `events`: what was noted while a run went on.


_KINDS = 40  # that are counted
_MOST = 200  # events on one page


def events(root: Root, run: str, kind: str = "", offset: int = 0) -> Answer:
    """The events of a run, oldest first; of one kind if it is given."""
    location = find(root, run)
    all_events = open_run(location.path).events()
    matching = [event for event in all_events if kind in ("", event.kind)]
    counts = Counter(event.kind for event in all_events).most_common(_KINDS)
    kinds = {short(name, 60): count for name, count in sorted(counts)}

    def wrap(shown: list[Any]) -> Answer:
        return {"run": name_of(location), "kinds": kinds, "total": len(matching), "offset": offset, "events": shown}

    shown = [_entry(event) for event in matching[offset : offset + _MOST]]
    return page(shown, offset, len(matching), wrap)


def _entry(event: Event) -> dict[str, Any]:
    fields = harmless(dict(event.fields), longest=300, items=20, depth=4)
    return {"kind": short(event.kind, 60), "step": event.step, "time": round(event.time, 3), "fields": fields}


# The tool `explain`: what a question asks, why, its limits and its fixes.


def explain(code: str = "") -> Answer:
    """The page of a question; of a section its questions; without a code the sections."""
    if not code:
        return {
            "sections": [
                {"section": name, "about": about, "questions": [question.code for question in section(name)]}
                for name, about in SECTIONS.items()
            ]
        }
    several = section(code)
    if several:
        return {
            "questions": [{"code": question.code, "name": question.name, "asks": question.asks} for question in several]
        }
    try:
        question = question_named(code)
    except UsageError as problem:
        known = ", ".join(everything())
        raise Problem(NO_QUESTION, str(problem).partition(";")[0], f"there are: {known}") from None
    return {"code": question.code, "name": question.name, "text": _text(question)}


def _text(question: Question) -> str:
    parts = [
        f"{part.heading}\n" + "\n".join(f"{f}{text}" for text, f, _ in entries(part))
        for part in question_page(question)
    ]
    return "\n\n".join(parts)
