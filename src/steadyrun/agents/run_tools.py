"""The tools' answers: from one run, from the list of runs, or from the table of questions."""

from __future__ import annotations

import logging
import os
import shlex
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steadyrun.agents.bounded_json import MOST, Answer, dumps, figure, fitted, harmless, largest, page, short
from steadyrun.agents.run_names import (
    BAD_ARGUMENT,
    NO_QUESTION,
    NO_SERIES,
    NOT_WRITTEN,
    NOTHING,
    Problem,
    find,
    name_of,
    without,
)
from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.panels.thinning import places
from steadyrun.postmortem.document import Document
from steadyrun.postmortem.document import write as composed
from steadyrun.postmortem.document_files import FOLDER, save
from steadyrun.postmortem.document_markdown import markdown
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOTE, SUSPECT, Question
from steadyrun.records import Event, Series
from steadyrun.report import limits
from steadyrun.report.comparison import compare
from steadyrun.report.file_formats import document
from steadyrun.report.limits import everything, question_named
from steadyrun.report.question_page import SECTIONS, entries, question_page, section, section_named
from steadyrun.report.report import Report, brief, check_with, last_word, started
from steadyrun.signals.curves import thinned
from steadyrun.store.discover import Root, RunPlace, plain
from steadyrun.store.reader import open_run
from steadyrun.store.run_summary import printable
from steadyrun.store.series_catalogue import entry_for
from steadyrun.trees.walker import Asked

# The tools for one run or the list of runs: `list_runs`, `check`, `events`, `explain`.


log = logging.getLogger("steadyrun.agents")

_UNREADABLE = "unreadable"


@dataclass(frozen=True)
class _ListedRun:
    location: RunPlace
    name: str
    began: float


def list_runs(root: Root, offset: int = 0, limit: int = 20) -> Answer:
    """One page of the list of runs; only these runs are read."""
    listed = sorted((_listed(location) for location in root.runs()), key=lambda run: (-run.began, run.name))
    rows = [_row(run) for run in listed[offset : offset + limit]]

    def wrap(shown: list[Any]) -> Answer:
        return {"total": len(listed), "offset": offset, "runs": shown}

    return page(rows, offset, len(listed), wrap)


def _listed(location: RunPlace) -> _ListedRun:
    try:
        began = started(open_run(location.path).manifest)
    except Exception as problem:  # one unreadable run must not hide the others
        log.debug("reading %s failed: %s", location.name, problem)
        began = 0.0
    return _ListedRun(location, name_of(location), began)


def _row(run: _ListedRun) -> dict[str, Any]:
    try:
        view = open_run(run.location.path).as_of_now()
        state = view.state
        loss = view.series("loss") if "loss" in view.names() else None
        verdict, headline, _ = last_word(view, state)
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


# The tool `check`: the report of a run as in `steadyrun check --json`, with only the faults of the walk.
_SHORTENED = ("not_asked", "notes", "damage", "consequences", "walk", "beside")  # cut in this order


def check(root: Root, run: str, everything: bool = False, question: str = "", after: str = "") -> Answer:
    """The report of a run; with `after` compared with an earlier run, both checked past their first fault."""
    location, old = find(root, run), find(root, after) if after else None
    asked = _codes(question)
    report = _walk(location, everything or old is not None)
    comparison = None if old is None else compare(report, _walk(old, True))
    whole = document(report, comparison) | {"run": name_of(location)}
    if old is not None:
        whole["after"] = harmless(whole["after"] | {"run": name_of(old)}, longest=200, items=20)
    return fitted(_shortened(whole, report, asked), _SHORTENED)


def _walk(location: RunPlace, go_on: bool) -> Report:
    """Check a run with the thresholds of the working directory, as on the command line."""
    try:
        changes = limits.changes({}, Path.cwd())
    except UsageError as problem:
        message = short(without(Path.cwd(), str(problem)), 300)
        raise Problem(BAD_ARGUMENT, message, "fix that file, which sets thresholds") from None
    return check_with(location.path, changes, go_on=go_on)


def _codes(question: str) -> set[str]:
    """The questions to show in full."""
    if not question:
        return set()
    try:
        return {named.code for named in section_named(question) or [question_named(question)]}
    except UsageError as problem:
        raise Problem(
            NO_QUESTION, str(problem).partition(";")[0], "call explain without a code to list all questions"
        ) from None


def _shortened(whole: dict[str, Any], report: Report, asked: set[str]) -> Answer:
    """The faults of the walk and the requested questions, and the number of answers of each kind."""
    walk = [
        answered for answered in whole["walk"] if answered["answer"] in {FAULT, SUSPECT} or answered["code"] in asked
    ]
    unanswered = [question for question in whole["not_asked"] if question["missing"] or question["code"] in asked]
    kinds = Counter(answered["answer"] for answered in whole["walk"])
    counts = {kind: kinds[kind] for kind in (FAULT, SUSPECT, NOTE, "pass", CANNOT_TELL, "not-applicable")}
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
    """A separate fault, which the headline does not explain, with its fix."""
    return brief(asked) | {"fix": asked.answer.fix}


# The tool `events`: the event log of a run.


_KINDS = 40  # kinds to count
_MOST = 200  # events on one page


def events(root: Root, run: str, kind: str = "", offset: int = 0) -> Answer:
    """The events of a run, oldest first; only of one kind if given."""
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


# The tool `explain`: what a question checks, why, its limits and its fixes.


def explain(code: str = "") -> Answer:
    """The page of a question, the questions of a section, or all sections without a code."""
    if not code:
        return {
            "sections": [
                {"section": name, "about": about, "questions": [question.code for question in section(name)]}
                for name, about in SECTIONS.items()
            ]
        }
    several = section_named(code)
    if several:
        return {
            "questions": [{"code": question.code, "name": question.name, "asks": question.asks} for question in several]
        }
    try:
        question = question_named(code)
    except UsageError as problem:
        known = ", ".join(everything())
        raise Problem(NO_QUESTION, str(problem).partition(";")[0], f"known codes: {known}") from None
    return {
        "code": question.code,
        "aliases": list(question.aliases),
        "name": question.name,
        "text": _text(question),
    }


def _text(question: Question) -> str:
    parts = [
        f"{part.heading}\n" + "\n".join(f"{f}{text}" for text, f, _ in entries(part))
        for part in question_page(question)
    ]
    return "\n\n".join(parts)


# The tool `series`: the series of a run, and a series in few points that keep its spikes.


LEAST, MOST_POINTS = 10, 500  # points
_NAMES = 300  # on one page

Values = npt.NDArray[np.float64]


def series(
    root: Root,
    run: str,
    name: str = "",
    pattern: str = "*",
    first: int | None = None,
    last: int | None = None,
    points: int = 100,
    offset: int = 0,
) -> Answer:
    """One series, or the names that match the pattern if no name is given."""
    location = find(root, run)
    view = open_run(location.path).as_of_now()
    if not name:
        return {"run": name_of(location)} | _names(view.names(), pattern, offset)
    try:
        chosen = view.series(name)
    except UsageError as problem:
        hint = str(problem).partition("; ")[2]
        remedy = f"{short(hint, 300)} (call series with a pattern to list the names)"
        raise Problem(NO_SERIES, f"this run has no series {short(name, 100)!r}", remedy) from None
    return {"run": name_of(location)} | _one(chosen, first, last, points)


def _names(names: list[str], pattern: str, offset: int) -> Answer:
    """One page of the matching names."""
    matching = [name for name in names if fnmatchcase(name, pattern)]

    def wrap(shown: list[Any]) -> Answer:
        return {"pattern": short(pattern, 100), "total": len(matching), "offset": offset, "names": shown}

    shown = [short(name, 300) for name in matching[offset : offset + _NAMES]]
    return page(shown, offset, len(matching), wrap)


def _one(chosen: Series, first: int | None, last: int | None, most: int) -> Answer:
    if first is not None and last is not None and first > last:
        raise Problem(BAD_ARGUMENT, f"first ({first}) is larger than last ({last})", "swap them")
    inside = np.ones(len(chosen), bool)
    if first is not None:
        inside &= chosen.steps >= first
    if last is not None:
        inside &= chosen.steps <= last
    steps, values = chosen.steps[inside], chosen.values[inside]
    kept = few(values, most)
    entry = entry_for(chosen.name)
    return {
        "name": short(chosen.name),
        "meaning": None if entry is None else entry.meaning,
        "unit": None if entry is None else entry.unit or None,
        "total": len(chosen),
        "in_range": len(steps),
        "shown": len(kept),
        "range": None if not len(chosen) else [int(chosen.steps[0]), int(chosen.steps[-1])],
        "summary": summary(steps, values),
        "points": [[int(step), figure(float(value))] for step, value in zip(steps[kept], values[kept], strict=True)],
    }


def few(values: Values, most: int) -> npt.NDArray[np.int64]:
    """At most `most` points to show: the ends, the minimum and maximum of every stretch, and the first, the last and
    some other non-finite points."""
    if len(values) <= most:
        return np.arange(len(values))
    good, bad = np.flatnonzero(np.isfinite(values)), np.flatnonzero(~np.isfinite(values))
    room = max(most // 4, most - len(good))
    shown = bad[thinned(len(bad), room)] if len(bad) else bad
    return np.unique(np.concatenate([_extremes(values, good, most - len(shown)), shown]))


def _extremes(values: Values, good: npt.NDArray[np.int64], most: int) -> npt.NDArray[np.int64]:
    """At most that many finite points; the ends are added to what thinning keeps, unless they are extremes."""
    if not len(good):
        return good
    kept = good[places(values[good], most)]
    return kept if len(kept) <= most else good[places(values[good], most - 2)]


def summary(steps: npt.NDArray[np.int64], values: Values) -> dict[str, Any] | None:
    """Ends, extremes, mean and median of the finite values, the number of non-finite values and their first step."""
    if not len(values):
        return None
    finite = np.isfinite(values)
    good, where = values[finite], steps[finite]
    ends = {"first": _point(steps, values, 0), "last": _point(steps, values, -1)}
    bad = {
        "not_finite": int(np.sum(~finite)),
        "first_not_finite": None if finite.all() else int(steps[np.argmin(finite)]),
    }
    if not len(good):
        return ends | {"min": None, "max": None, "mean": None, "median": None} | bad
    middle = {"mean": figure(float(np.mean(good))), "median": figure(float(np.median(good)))}
    lowest, highest = _point(where, good, int(np.argmin(good))), _point(where, good, int(np.argmax(good)))
    return ends | {"min": lowest, "max": highest} | middle | bad


def _point(steps: npt.NDArray[np.int64], values: Values, index: int) -> list[Any]:
    return [int(steps[index]), figure(float(values[index]))]


# The tool `postmortem`: the document of an incident. It is written to the run directory only on request.


_NO_PICTURE = "it was not requested."


def postmortem(root: Root, run: str, step: int | None = None, write: bool = False) -> Answer:
    """The post-mortem of the most severe incident, or of the one at `step`, as Markdown within JSON."""
    location = find(root, run)
    try:
        document = composed(location.path, step)
    except RunDirectoryError:
        raise
    except UsageError as problem:
        remedy = "call check for the state of the run; give `step` to write about any step"
        raise Problem(NOTHING, short(without(root.path, str(problem))), remedy) from None
    files = _written(document, root) if write else None
    return _answer(name_of(location), document, _document_text(document, root), files)


def _document_text(document: Document, root: Root) -> str:
    name = _typed(document.case.run / FOLDER / f"{document.stem}.json", root)
    lines = markdown(document, shlex.quote(name), None, _NO_PICTURE).split("\n")
    return without(root.path, "\n".join(printable(line) for line in lines))


def _typed(path: Path, root: Root) -> str:
    """A path relative to where the server was started, or below the root if that is elsewhere."""
    here = os.path.relpath(path)
    return str(path.relative_to(root.path)) if here.startswith("..") else here


def _written(document: Document, root: Root) -> list[str]:
    """Write the files to the run directory only; do not follow links."""
    folder = document.case.run / FOLDER
    remedy = "call it without `write`: the answer has the whole document"
    try:
        if not plain(folder):
            raise Problem(NOT_WRITTEN, f"{FOLDER} of the run is a symbolic link, or contains one", remedy)
        files = save(document, None, picture=False)
    except OSError as problem:
        raise Problem(NOT_WRITTEN, f"cannot write to {FOLDER}: {problem.strerror}", remedy) from None
    return [_relative(path, root) for path in (files.markdown, files.json)]


def _relative(path: Path, root: Root) -> str:
    return short(str(path.relative_to(root.path)))


def _answer(run: str, document: Document, text: str, files: list[str] | None) -> Answer:
    moment, root = document.case.moment, document.root
    answer: Answer = {
        "run": run,
        "step": moment.step,
        "kind": moment.kind,
        "root_cause": harmless(root.to_dict()),
        "lesson": short(document.lesson),
        "written": files,
        "markdown": "",
        "cut": {},
    }

    def cut(keep: int) -> Answer:
        gone = {"markdown": len(text) - keep} if keep < len(text) else {}
        return answer | {"markdown": text[:keep], "cut": gone}

    return cut(largest(len(text), lambda keep: len(dumps(cut(keep))) <= MOST))
