"""A panel in a few lines of text: what is drawn, on which scale, in which state."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.panels.panel import Board, Line, Mark, Panel

FEW = 6


def outline(board: Board) -> str:
    """All that a board says, without the numbers of its captions: for series that are the same on every machine."""
    return "\n".join([board.headline, *(line for panel in board.panels for line in _panel(panel))])


def frame(board: Board) -> str:
    """What a board of a real run shows on every machine: its fault, its lines, rules and bands.

    Left out is what a CPU's last bits may decide: notes, and which of several lines is ahead.
    """
    return "\n".join([_placeless(board.headline), *(line for panel in board.panels for line in _frame(panel))])


def _panel(panel: Panel) -> Iterator[str]:
    yield f"{_head(panel)}: {panel.badge}"
    yield f"  {_numberless(panel.missing or panel.caption)}"
    yield from _lines(panel.lines)
    yield from (f"  rule {_numberless(rule.label)}" for rule in panel.rules)
    yield from (f"  band {band.label}" for band in panel.bands)
    marks = [f"{_mark(mark)}{f' at {mark.first}' if mark.kind == 'fault' else ''}" for mark in panel.marks]
    yield from [f"  marks {', '.join(marks)}"] if marks else []


def _frame(panel: Panel) -> Iterator[str]:
    faults = [_mark(mark) for mark in panel.marks if mark.kind == "fault"]
    yield f"{_head(panel)}: {', '.join(faults) or 'no fault'}"
    yield from _lines(panel.lines, counted=False)
    yield from (f"  rule {_numberless(rule.label)}" for rule in panel.rules)
    yield from [f"  {len(panel.bands)} band"] if panel.bands else []


def _head(panel: Panel) -> str:
    return f"{panel.number} {panel.key}, {'log' if panel.left.log else 'linear'}"


def _mark(mark: Mark) -> str:
    return f"{mark.kind} {mark.code}"


def _lines(lines: tuple[Line, ...], *, counted: bool = True) -> Iterator[str]:
    """Every line of a few; of many, which are in front depends on their last digits."""
    if len(lines) > FEW:
        yield f"  {sum(line.role == 'main' for line in lines)} of {len(lines)} lines in front"
        return
    for line in lines:
        strange = f", {line.not_finite if counted else 'some'} not finite" if line.not_finite else ""
        points = f"{line.total} points" if counted or not line.not_finite else "points"
        yield f"  {line.role} {line.shape} {line.name}: {points}{strange}"


def _placeless(headline: str) -> str:
    return re.sub(r" at step \d+$", "", headline)


def _numberless(text: str) -> str:
    return re.sub(r"(?<![\w.])-?\d[\d.]*(e[-+]?\d+)?%?", "#", text)
