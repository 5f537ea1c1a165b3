"""Shared by all drawings of a panel: colours, and lines split into what an axis can show and what it cannot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steadyrun.panels.panel import Floats, Line, Mark, Panel, Steps

# Medium tones that most people can distinguish, on white and on black. Red and amber are reserved for findings.
COLOURS = ("#2f7ed8", "#e07b39", "#2a9d78", "#a66fd6", "#3aa6c4", "#8c8c3a", "#c76b98")
GREY = "#8a8f98"
BANDS = {"usual": "#2a9d78", "ranks": "#2f7ed8"}
OPACITIES = {"usual": 0.16, "ranks": 0.3}
MARKS = {"fault": "#d9363e", "suspect": "#d9731a", "note": "#b8860b", "warning": "#b8860b", "incident": "#7d8590"}
SYMBOLS = {"fault": "✗", "suspect": "▲", "note": "!", "warning": "!", "incident": "•"}
_COLOURED = ("main", "faint")
ODD = MARKS["fault"]  # the rank that differs from the others
FEW = 30  # points: up to this many are also drawn as dots


@dataclass(frozen=True)
class Cut:
    """A line as an axis can draw it: NaN at breaks, and the points outside the axis."""

    steps: Steps
    values: Floats
    lonely: npt.NDArray[np.bool_]  # points without neighbours, which a line would not show
    not_finite: tuple[Steps, Floats]
    not_positive: tuple[Steps, Floats]


def cut(line: Line, log: bool) -> Cut:
    """Cut a line at its gaps, at non-finite values and, on a log axis, at values that are not positive."""
    finite = np.isfinite(line.values)
    too_low = finite & (line.values <= 0) if log else np.zeros(len(finite), bool)
    values = np.where(finite & ~too_low, line.values, np.nan)
    after = np.searchsorted(line.steps, line.gaps, side="right")
    steps = np.insert(line.steps, after, line.gaps + 1)
    values = np.insert(values, after, np.nan)
    return Cut(
        steps,
        values,
        _lonely(values),
        (line.steps[~finite], line.values[~finite]),
        (line.steps[too_low], line.values[too_low]),
    )


def _lonely(values: Floats) -> npt.NDArray[np.bool_]:
    there = np.isfinite(values)
    before, after = np.append(False, there[:-1]), np.append(there[1:], False)
    alone: npt.NDArray[np.bool_] = there & ~before & ~after
    return alone


def colours(lines: Iterable[Line]) -> dict[str, str]:
    """A colour for every main line; lines of one kin share it."""
    kin = dict.fromkeys(line.kin or line.name for line in lines if line.role in _COLOURED)
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(kin)}


def colour_of(line: Line, chosen: dict[str, str]) -> str:
    if line.role == "odd":
        return ODD
    return chosen.get(line.kin or line.name, GREY) if line.role in _COLOURED else GREY


@dataclass(frozen=True)
class LegendEntry:
    """One entry of a legend: the traces of this group, their name, colour and look. A rule has no traces, group ""."""

    group: str
    name: str
    colour: str
    look: str


def groups(panel: Panel) -> list[str]:
    """The legend group of every line, in order; muted lines share one, and lines of the same name share one."""
    names = [line.name for line in panel.lines]
    return ["muted" if line.role == "muted" else f"line-{names.index(line.name)}" for line in panel.lines]


def legend(panel: Panel) -> list[LegendEntry]:
    """The legend entries: main lines, then muted lines, then bands and rules."""
    chosen = colours(panel.lines)
    placed = list(zip(groups(panel), panel.lines, strict=True))
    front = {
        group: LegendEntry(group, line.name, colour_of(line, chosen), _look(line))
        for group, line in placed
        if group != "muted"
    }
    muted = [line.name for group, line in placed if group == "muted"]
    if muted:
        front["muted"] = LegendEntry("muted", muted[0] if len(muted) == 1 else f"{len(muted)} more", GREY, "thin")
    bands = [
        LegendEntry(f"band-{index}", band.label, BANDS[band.kind], "band") for index, band in enumerate(panel.bands)
    ]
    rules = [LegendEntry("", rule.label, GREY, f"rule {rule.style}") for rule in panel.rules]
    return [*front.values(), *bands, *rules]


def _look(line: Line) -> str:
    if line.role == "declared":
        return "thick"
    return "dotted" if line.shape == "step" and line.kin else "line"


def decades(panel: Panel) -> float | None:
    """The number of decades that a log axis must span; None if no value fits on a log axis."""
    parts = [line.values for line in panel.lines if line.axis == "left"]
    parts += [edge for band in panel.bands for edge in (band.low, band.high)]
    parts += [np.array([rule.value]) for rule in panel.rules]
    ends = [(float(np.min(v)), float(np.max(v))) for part in parts if len(v := part[np.isfinite(part) & (part > 0)])]
    if not ends:
        return None
    return float(np.log10(max(high for _, high in ends)) - np.log10(min(low for low, _ in ends)))


def labels(marks: Iterable[Mark], span: tuple[int, int], close: float = 0.09) -> list[tuple[int, str, str]]:
    """The positions of code labels with their most severe kind. Marks close to each other share a label."""
    groups_of_marks: list[tuple[int, list[Mark]]] = []
    for mark in sorted(marks, key=lambda mark: mark.first):
        if groups_of_marks and mark.first - groups_of_marks[-1][0] <= close * max(1, span[1] - span[0]):
            groups_of_marks[-1][1].append(mark)
        else:
            groups_of_marks.append((mark.first, [mark]))
    return [
        (step, _codes(group), min((m.kind for m in group), key=list(MARKS).index)) for step, group in groups_of_marks
    ]


def _codes(marks: list[Mark]) -> str:
    ordered = sorted(marks, key=lambda mark: list(MARKS).index(mark.kind))
    codes = list(dict.fromkeys(f"{SYMBOLS[mark.kind]} {mark.code}" for mark in ordered))
    return codes[0] if len(codes) == 1 else f"{codes[0]} +{len(codes) - 1}"
