"""A panel in a few lines of text: what is drawn, on which scale, in which state. Numbers of captions are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.panels.model import Board, Line, Panel

FEW = 6


def outline(board: Board) -> str:
    return "\n".join([board.headline, *(line for panel in board.panels for line in _panel(panel))])


def _panel(panel: Panel) -> Iterator[str]:
    scale = "log" if panel.left.log else "linear"
    yield f"{panel.number} {panel.key}, {scale}: {panel.badge}"
    yield f"  {_numberless(panel.missing or panel.caption)}"
    yield from _lines(panel.lines)
    yield from (f"  rule {_numberless(rule.label)}" for rule in panel.rules)
    yield from (f"  band {band.label}" for band in panel.bands)
    marks = [f"{m.kind} {m.code}{f' at {m.first}' if m.kind == 'fault' else ''}" for m in panel.marks]
    yield from [f"  marks {', '.join(marks)}"] if marks else []


def _lines(lines: tuple[Line, ...]) -> Iterator[str]:
    """Every line of a few; of many, which are in front depends on their last digits."""
    if len(lines) > FEW:
        yield f"  {sum(line.role == 'main' for line in lines)} of {len(lines)} lines in front"
        return
    for line in lines:
        strange = f", {line.not_finite} not finite" if line.not_finite else ""
        yield f"  {line.role} {line.shape} {line.name}: {line.total} points{strange}"


def _numberless(text: str) -> str:
    return re.sub(r"(?<![\w.])-?\d[\d.]*(e[-+]?\d+)?%?", "#", text)
