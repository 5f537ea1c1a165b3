"""Two or more runs on the same panels, one colour each, and the differences of their configs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from steadyrun.panels import p1_loss, p2_rate, p3_gradient, p7_classes
from steadyrun.panels.lines import short
from steadyrun.panels.panel import Line, Panel
from steadyrun.report.phrases import one_line
from steadyrun.store.jsonio import jsonable

MOST = 7  # runs: the number of distinguishable colours
COMPARED = {1: p1_loss, 2: p2_rate, 3: p3_gradient, 7: p7_classes}
_PARTS = ("config", "inferred", "versions", "git", "hardware")
_NAMES = {"config": "declared"}
_MOST_ROWS = 200
_LONGEST = 60  # characters of a value


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs between runs; "" if a run does not have it."""

    part: str
    name: str
    values: tuple[str, ...]


def overlaid(number: int, of_runs: Mapping[str, Panel]) -> Panel:
    """One panel with the lines of several runs, without rules, bands and marks, which belong to a single run."""
    lines = [
        replace(line, name=f"{short(run)}: {line.name}", kin=run, role="main")
        for run, panel in of_runs.items()
        for line in _chosen(number, panel, of_runs)
    ]
    first = next(iter(of_runs.values()))
    missing = "" if lines else "record it in all runs, or compare runs that have it"
    return Panel(number, first.key, first.title, first.subject, first.left, tuple(lines), missing=missing)


def _chosen(number: int, panel: Panel, of_runs: Mapping[str, Panel]) -> Iterator[Line]:
    """The recorded lines to compare; of classes only those that several runs have."""
    everywhere = [{line.name for line in other.lines} for other in of_runs.values()]
    smoothed = {line.name for line in panel.lines if line.role == "faint"}
    for line in panel.lines:
        shared = number != 7 or sum(line.name in names for names in everywhere) > 1
        if shared and (line.role == "main" or (line.role == "faint" and line.name not in smoothed)):
            yield line


def differences(manifests: Mapping[str, Mapping[str, Any]]) -> list[SettingDifference]:
    """The differences between the manifests: declared, then inferred, then the environment."""
    rows = []
    for part in _PARTS:
        settings = [_flat(manifest.get(part)) for manifest in manifests.values()]
        for name in sorted({name for run_settings in settings for name in run_settings}):
            values = tuple(run_settings.get(name, "") for run_settings in settings)
            if len(set(values)) > 1:
                rows.append(
                    SettingDifference(_NAMES.get(part, part), short(name), tuple(_cut(value) for value in values))
                )
    return rows[:_MOST_ROWS]


def _flat(value: Any, before: str = "") -> dict[str, str]:
    """Nested settings by dotted names, as short JSON."""
    if isinstance(value, dict):
        flat: dict[str, str] = {}
        for key, item in value.items():
            flat |= _flat(item, f"{before}.{key}" if before else str(key))
        return flat
    if not before:
        return {}
    return {before: json.dumps(jsonable(value), ensure_ascii=False)}


def _cut(text: str) -> str:
    return one_line(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
