"""`steadyrun verify`: check a new run against section 6 of a post-mortem."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadyrun.errors import UsageError
from steadyrun.postmortem.expectations import CANNOT, FAILS, HOLDS, KINDS, Checked, hold
from steadyrun.report import limits
from steadyrun.report.report import examined
from steadyrun.store.incident_files import text, to_number

SCHEMA = 1


@dataclass(frozen=True)
class Verification:
    """Result of checking a run against a post-mortem: a verdict per expectation."""

    document: str
    run: str
    checked: tuple[Checked, ...]

    @property
    def verdict(self) -> str:
        """`fail` if an item fails, else `cannot-tell` if an item is undecided, else `pass`."""
        verdicts = {checked.verdict for checked in self.checked}
        return FAILS if FAILS in verdicts else CANNOT if CANNOT in verdicts or HOLDS not in verdicts else HOLDS

    @property
    def exit_code(self) -> int:
        return {HOLDS: 0, FAILS: 1, CANNOT: 3}[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/postmortem.md)."""
        return {
            "schema": SCHEMA,
            "document": self.document,
            "run": self.run,
            "verdict": self.verdict,
            "checked": [asdict(checked) for checked in self.checked],
        }


def verify(document: str | os.PathLike[str], run: str | os.PathLike[str]) -> Verification:
    """Check a fixed run against section 6 of a post-mortem, as `steadyrun verify` does.

    `document` is the post-mortem's .json or .md file, `run` the directory of the new run. The result has a `verdict`
    ("pass", "fail" or "cannot-tell") and an `exit_code`.
    """
    expected = read_expectations(Path(document).expanduser())
    signals, report = examined(run, limits.changes({}, Path.cwd()), go_on=True)
    return Verification(str(document), str(run), tuple(hold(expectation, signals, report) for expectation in expected))


def read_expectations(document: Path) -> list[Mapping[str, Any]]:
    """The expectations of a post-mortem; an error if there are none."""
    path = document.with_suffix(".json") if document.suffix.lower() == ".md" else document
    beside = f" (the file beside {document.name})" if path != document else ""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise UsageError(f"cannot read {path}{beside} as a post-mortem: {problem}") from None
    section = content.get("verification") if isinstance(content, dict) else None
    expectations = section.get("expectations") if isinstance(section, dict) else None
    if (
        not isinstance(expectations, list)
        or not expectations
        or not all(isinstance(expectation, dict) for expectation in expectations)
    ):
        raise UsageError(f"{path} is not a post-mortem: it has no verification.expectations")
    for expectation in expectations:
        _check_form(expectation, path)
    return expectations


def _check_form(expected: Mapping[str, Any], path: Path) -> None:
    kind = text(expected, "kind")
    if kind not in KINDS:
        raise UsageError(
            f"{path} contains the expectation {kind!r}, which this version of steadyrun does not support; it supports "
            f"{', '.join(KINDS)}"
        )
    for name in KINDS[kind].numbers:
        if to_number(expected.get(name)) is None or not math.isfinite(to_number(expected.get(name)) or 0.0):
            raise UsageError(f"{path}: the expectation {kind!r} needs a number {name!r}")
    for name in KINDS[kind].words:
        if not text(expected, name):
            raise UsageError(f"{path}: the expectation {kind!r} needs {name!r}")
