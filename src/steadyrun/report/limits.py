"""Thresholds that the user changed: on the command line, in steadyrun.toml, in [tool.steadyrun] of pyproject.toml."""

from __future__ import annotations

import difflib
import math
import numbers
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.questions.aliases import OWN, code_of
from steadyrun.questions.form import Question
from steadyrun.trees import QUESTIONS

# Questions and thresholds by the names people type; an unknown name gets an error that helps.


def everything() -> dict[str, Question]:
    """Every question by its code: those of the trees, then the probes of what no record shows."""
    return {**QUESTIONS, **{code: probe for code, probe in _probes().items() if code not in QUESTIONS}}


def probe_for(question: Question) -> Question | None:
    """The probe of preflight that tries what this question of the trees sees in a record; None if there is none."""
    return None if question.tried else _probes().get(question.code)


def _probes() -> Mapping[str, Question]:
    """Imported when they are asked for: a check of a run that changes no threshold needs none of them."""
    from steadyrun.preflight import ON_RANKS, PROBES

    return {**PROBES, **ON_RANKS}


def question_named(code: str) -> Question:
    """The question with this code, or that had it before, in any case."""
    known = everything()
    question = known.get(code_of(code.upper()))
    if question is None:
        near = [
            known_code for known_code in known if known_code[:1] == code[:1].upper()
        ]  # of the same tree, or of preflight
        raise UsageError(f"there is no question {code!r}; {hint(code.upper(), near or known)}")
    return question


def threshold_named(full_name: str) -> tuple[str, str]:
    """`("C3.1", "high")` for `"C3.1.high"`, if there is such a threshold. A former code names the probe's limits."""
    code, _, name = full_name.rpartition(".")
    question = question_named(full_name if code_of(full_name.upper()) in everything() else code or full_name)
    names = limit_names(question)
    if code.upper() in question.aliases and f"{OWN}{name}" in names:
        name = f"{OWN}{name}"
    if name not in names:
        known = [f"{question.code}.{known_name}" for known_name in names]
        raise UsageError(f"there is no threshold {full_name!r}; {hint(f'{question.code}.{name}', known)}")
    return question.code, name


def limit_names(question: Question) -> list[str]:
    """The names of the limits of a question and of its probe; a limit that both have is one."""
    probe = probe_for(question)
    limits = [*question.thresholds, *(probe.thresholds if probe is not None else ())]
    return list(dict.fromkeys(threshold.name for threshold in limits))


def hint(name: str, known: Iterable[str]) -> str:
    """What the writer may have meant, and what there is."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    listed = ", ".join(names) or "none"
    return f"did you mean {' or '.join(close)}? There are: {listed}" if close else f"there are: {listed}"


# Where the section lies in each file; of two in one folder the later wins.
_SECTIONS = {"pyproject.toml": ("tool", "steadyrun", "thresholds"), "steadyrun.toml": ("thresholds",)}


def changes(given: Mapping[str, float], folder: Path, *, tried: bool = False) -> dict[str, dict[str, float]]:
    """The changed thresholds by question and name: of the questions to a record, or of the probes if `tried`.

    `given` has full names such as `"C3.1.high"` and goes before the files. Of these the nearest folder counts,
    from `folder` upwards, that has such a section.
    """
    asked = _probes() if tried else QUESTIONS
    changed: dict[str, dict[str, float]] = {}
    for where, values in [*_nearest_files(folder), ("the given thresholds", given)]:
        for full_name, value in values.items():
            code, name, number = _checked(where, full_name, value)
            if code in asked and any(threshold.name == name for threshold in asked[code].thresholds):
                changed.setdefault(code, {})[name] = number
    return changed


def parsed(assignments: Iterable[str]) -> dict[str, float]:
    """`{"C3.1.high": 8.0}` for `["C3.1.high=8"]`, as the command line takes them."""
    thresholds = {}
    for text in assignments:
        name, _, value = text.partition("=")
        try:
            thresholds[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"{text!r} is not NAME=NUMBER, such as C3.1.high=8") from None
    return thresholds


def _nearest_files(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    start = folder.absolute()
    for ancestor in (start, *start.parents):
        files = [(ancestor / name, section) for name, section in _SECTIONS.items() if (ancestor / name).is_file()]
        sections = [(str(path), values) for path, section in files if (values := _section(path, section)) is not None]
        if sections:
            return sections
    return []


def _section(path: Path, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The thresholds of one file by full name, None where it has no such section."""
    table: Any = _toml(path, ours=len(keys) == 1)
    if len(keys) == 1 and (strange := sorted(set(table) - set(keys))):
        raise UsageError(f"{path}: {strange[0]!r} is not known; thresholds go into the table [thresholds]")
    for key in keys:
        if not isinstance(table, dict) or key not in table:
            return None
        table = table[key]
    if not isinstance(table, dict):
        raise UsageError(f'{path}: [{".".join(keys)}] must be a table, such as "C3.1.high" = 8')
    return dict(_flat(table))


def _toml(path: Path, *, ours: bool) -> dict[str, Any]:
    """A TOML file; a broken one that is not ours has nothing to say to us."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:  # broken TOML and broken UTF-8 are both ValueErrors
        if not ours:
            return {}
        raise UsageError(f"{path} cannot be read: {problem}") from problem


def _flat(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """`[thresholds."C3.1"] high = 8`, `"C3.1.high" = 8` and `[thresholds.C3.1] high = 8` all mean the same."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _checked(where: str, full_name: str, value: Any) -> tuple[str, str, float]:
    try:
        code, name = threshold_named(full_name)
    except UsageError as problem:
        raise UsageError(f"{where}: {problem}") from None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise UsageError(f"{where}: {full_name} must be a number, got {value!r}")
    if not math.isfinite(number := _float(value)):
        raise UsageError(f"{where}: {full_name} must be finite, got {number}")
    if number <= 0:
        raise UsageError(f"{where}: {full_name} must be positive, got {number:g}")
    return code, name, number


def _float(value: numbers.Real) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf
