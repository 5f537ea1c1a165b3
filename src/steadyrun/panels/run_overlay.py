"""Two or more runs on the same panels, one colour each, and the differences of their configs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from steadyrun.panels import p1_loss, p2_rate, p3_gradient, p7_classes
from steadyrun.panels.lines import short
from steadyrun.panels.panel import Band, Line, Panel
from steadyrun.report.phrases import one_line
from steadyrun.signals.overview import mean_and_sigma
from steadyrun.store.jsonio import jsonable

MOST = 7  # runs: the number of distinguishable colours
COMPARED = {1: p1_loss, 2: p2_rate, 3: p3_gradient, 7: p7_classes}
_DECLARED = "config"
_SURROUNDINGS = ("inferred", "versions", "git", "hardware")
_SEED = "seed"
_FEWEST = 2  # runs of a group that is drawn as mean and band
_MOST_ROWS = 200
_LONGEST = 60  # characters of a value


@dataclass(frozen=True)
class SettingDifference:
    """A setting that differs between runs; "" if a run does not have it. `set_by_hand`: a person declared it."""

    part: str
    name: str
    values: tuple[str, ...]
    set_by_hand: bool


def overlaid(number: int, of_runs: Mapping[str, Panel], groups: Sequence[Sequence[str]] = ()) -> Panel:
    """One panel with the lines of several runs, without rules, bands and marks, which belong to a single run.

    Runs of one group, such as the seeds of one configuration, are faint behind their mean and its band of one σ.
    """
    chosen = {run: list(_chosen(number, panel, of_runs)) for run, panel in of_runs.items()}
    grouped = {run for group in groups for run in group}
    lines = [
        replace(line, name=f"{short(run)}: {line.name}", kin=run, role="muted" if run in grouped else "main")
        for run, of_run in chosen.items()
        for line in of_run
    ]
    bands = []
    for group in groups:
        for name in dict.fromkeys(line.name for run in group for line in chosen[run]):
            members = [line for run in group for line in chosen[run] if line.name == name]
            if len(members) >= _FEWEST and (spread := mean_and_sigma([(m.steps, m.values) for m in members])):
                label = f"{name}, {len(members)} seeds of {short(group[0])}"
                lines.append(Line(f"mean {label}", spread.steps, spread.mean, total=len(spread.steps)))
                low, high = spread.mean - spread.sigma, spread.mean + spread.sigma
                bands.append(Band(spread.steps, low, high, f"±σ of {label}"))
    first = next(iter(of_runs.values()))
    missing = "" if lines else "record it in all runs, or compare runs that have it"
    scale, title, subject = first.left, first.title, first.subject
    return Panel(number, first.key, title, subject, scale, tuple(lines), bands=tuple(bands), missing=missing)


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
    for part in (_DECLARED, *_SURROUNDINGS):
        settings = [_flat(manifest.get(part)) for manifest in manifests.values()]
        for name in sorted({name for run_settings in settings for name in run_settings}):
            values = tuple(run_settings.get(name, "") for run_settings in settings)
            if len(set(values)) > 1:
                cut = tuple(_cut(value) for value in values)
                rows.append(SettingDifference(part, short(name), cut, part == _DECLARED))
    return rows[:_MOST_ROWS]


def declared(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What a person declared in the config of a run, by dotted names."""
    return {short(name): _cut(value) for name, value in _flat(manifest.get(_DECLARED)).items()}


def seed_groups(manifests: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The runs that differ in their seed alone, in groups of two or more."""
    groups: dict[str, list[str]] = {}
    for run, manifest in manifests.items():
        settings = {name: value for name, value in declared(manifest).items() if name != _SEED}
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    return [runs for runs in groups.values() if len(runs) >= _FEWEST]


def _flat(value: Any, before: str = "") -> dict[str, str]:
    """Nested settings by their dotted names, as short JSON."""
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
