"""What honest runs measured for each limit: the numbers beside the thresholds, written by a benchmark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from steadyrun.questions.form import Question, Threshold
from steadyrun.store.jsonio import number


@dataclass(frozen=True)
class Healthy:
    """A measured number over all healthy runs."""

    runs: int
    median: float
    p99: float
    worst: float
    worst_run: str


@dataclass(frozen=True)
class Measured:
    """A measured number: over the healthy runs, and in each faulty one."""

    healthy: Healthy | None
    faults: Mapping[str, float]


def measured(question: Question, threshold: Threshold) -> Measured | None:
    """What the number that a threshold limits was; None where it was not measured yet."""
    found = _all().get(question.code, {}).get(threshold.of)
    return None if found is None else parse(found)


def parse(entry: Mapping[str, Any]) -> Measured:
    healthy = entry.get("healthy")
    faults = {name: number(value) for name, value in entry.get("faults", {}).items()}
    if not healthy:
        return Measured(None, faults)
    numbers = {name: number(healthy[name]) for name in ("median", "p99", "worst")}
    return Measured(Healthy(int(healthy["runs"]), **numbers, worst_run=str(healthy["worst_run"])), faults)


@cache
def _all() -> dict[str, Any]:
    file = resources.files("steadyrun.questions") / "measured.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found
