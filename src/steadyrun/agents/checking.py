"""The tool `check`: the report of a run as `steadyrun check --json` has it, with the faults of the walk alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from steadyrun.agents.bounding import Answer, fitted, harmless, short
from steadyrun.agents.naming import find, name_of, without
from steadyrun.agents.problems import BAD_ARGUMENT, NO_QUESTION, Problem
from steadyrun.errors import UsageError
from steadyrun.questions.form import CANNOT_TELL, FAULT, NOTE
from steadyrun.report import thresholds
from steadyrun.report.checking import Report, brief, check_with
from steadyrun.report.comparison import compare
from steadyrun.report.jsonform import document
from steadyrun.report.naming import question_named
from steadyrun.report.page import section
from steadyrun.store.finding import Place, Root
from steadyrun.trees.walker import Asked

_SHORTENED = ("not_asked", "notes", "damage", "consequences", "walk", "beside")  # what is cut first comes first


def check(root: Root, run: str, all: bool = False, question: str = "", after: str = "") -> Answer:
    """The report of a run; with `after` compared with an earlier run, both walked past their first fault."""
    place, old = find(root, run), find(root, after) if after else None
    asked = _codes(question)
    report = _walk(place, all or old is not None)
    comparison = None if old is None else compare(report, _walk(old, True))
    whole = document(report, comparison) | {"run": name_of(place)}
    if old is not None:
        whole["after"] = harmless(whole["after"] | {"run": name_of(old)}, longest=200, items=20)
    return fitted(_shortened(whole, report, asked), _SHORTENED)


def _walk(place: Place, go_on: bool) -> Report:
    """The walk, with the thresholds that the working directory changes, as on the command line."""
    try:
        changes = thresholds.changes({}, Path.cwd())
    except UsageError as problem:
        message = short(without(Path.cwd(), str(problem)), 300)
        raise Problem(BAD_ARGUMENT, message, "mend that file: it changes thresholds") from None
    return check_with(place.path, changes, go_on=go_on)


def _codes(question: str) -> set[str]:
    """The questions of which everything is wanted."""
    if not question:
        return set()
    try:
        return {each.code for each in section(question) or [question_named(question)]}
    except UsageError as problem:
        raise Problem(NO_QUESTION, str(problem).partition(";")[0], "explain without a code lists them all") from None


def _shortened(whole: dict[str, Any], report: Report, asked: set[str]) -> Answer:
    """Of the walk the faults, and the questions that were asked for; how many answers of each kind there are."""
    walk = [each for each in whole["walk"] if each["answer"] == FAULT or each["code"] in asked]
    unanswered = [each for each in whole["not_asked"] if each["missing"] or each["code"] in asked]
    kinds = Counter(each["answer"] for each in whole["walk"])
    counts = {kind: kinds[kind] for kind in (FAULT, NOTE, "pass", CANNOT_TELL, "not-applicable")}
    changed = {"walk": harmless(walk), "not_asked": harmless(unanswered)}
    found = {key: harmless(value) for key, value in whole.items() if key not in changed}
    cut = {
        "walk": len(whole["walk"]) - len(walk),
        "not_asked": len(whole["not_asked"]) - len(unanswered),
    }
    answer = {key: changed.get(key, found.get(key)) for key in whole}
    return answer | {
        "beside": harmless([_beside(each) for each in report.ranking.beside]),
        "answers": counts | {"not-reached": len(report.walk.not_reached)},
        "cut": {name: count for name, count in cut.items() if count},
    }


def _beside(asked: Asked) -> dict[str, Any]:
    """A fault of its own, which the headline does not explain, with its fix."""
    return brief(asked) | {"fix": asked.answer.fix}
