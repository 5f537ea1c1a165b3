"""The data of a panel as plotly traces."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np

from steadyrun.panels import drawing
from steadyrun.panels.model import Band, Line, Mark, Panel, Steps

EDGE = "y2"  # an axis from 0 to 1 over the whole height, for what has no place on the real one
RIGHT = "y3"
_SIGNS = {"nan": "x", "inf": "triangle-up", "-inf": "triangle-down"}


def traces(panel: Panel) -> Iterator[dict[str, Any]]:
    """Bands first, then lines in their order, then the marks' tips. `meta` says what is no line."""
    yield from _bands(panel)
    yield from _lines(panel)
    yield from _mark_points(panel.marks)


def safe(text: str) -> str:
    """Text for plotly, which reads tags in it."""
    return html.escape(text, quote=False)


def _compact(steps: Steps) -> Any:
    """Steps in four bytes where they fit: half of a page is steps. Browsers know no longer integers."""
    fits = not len(steps) or (steps.min() > -(2**31) and steps.max() < 2**31)
    return steps.astype(np.int32 if fits else np.float64)


def _bands(panel: Panel) -> Iterator[dict[str, Any]]:
    for place, band in enumerate(panel.bands):
        yield _around(band) | {
            "name": safe(band.label),
            "fill": "toself",
            "fillcolor": "rgba(42,157,120,0.16)",
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "legendgroup": f"band-{place}",
            "legendrank": 2000,
        }


def _around(band: Band) -> dict[str, Any]:
    return {
        "x": _compact(np.concatenate([band.steps, band.steps[::-1]])),
        "y": np.concatenate([band.high, band.low[::-1]]),
        "type": "scatter",
        "meta": "band",
    }


def _lines(panel: Panel) -> Iterator[dict[str, Any]]:
    chosen = drawing.colours(panel.lines)
    names = {entry.group: safe(entry.name) for entry in drawing.legend(panel)}
    told: set[str] = set()
    for line, group in zip(panel.lines, drawing.groups(panel), strict=True):
        log = panel.left.log and line.axis == "left"
        for trace in _traces(line, log, drawing.colour_of(line, chosen)):
            yield trace | {"name": names[group], "legendgroup": group, "showlegend": group not in told}
            told.add(group)


def _traces(line: Line, log: bool, colour: str) -> Iterator[dict[str, Any]]:
    """The line itself; at the top edge what is not finite, at the bottom what a log axis cannot show."""
    if not len(line.steps):
        return
    parts = drawing.cut(line, log)
    name = safe(line.name)
    yield {
        "type": "scatter",
        "x": _compact(parts.steps),
        "y": parts.values,
        "yaxis": "y" if line.axis == "left" else RIGHT,
        "hovertemplate": f"{name.replace('%{', '% {')}<br>step %{{x:,}}: %{{y:.7~g}}<extra></extra>",
        **_style(line, parts, colour),
    }
    if len(parts.not_finite[0]):
        yield _edge(line, parts.not_finite, 0.955, colour)
    if len(parts.not_positive[0]):
        yield _edge(line, parts.not_positive, 0.03, colour)


def _style(line: Line, parts: drawing.Cut, colour: str) -> dict[str, Any]:
    dots = len(parts.steps) <= drawing.FEW and line.role != "declared"
    alone = bool(np.any(parts.lonely))
    width = {"declared": 5.0, "muted": 1.0, "faint": 1.0}.get(line.role, 1.6)
    style: dict[str, Any] = {
        "mode": "lines+markers" if dots or alone else "lines",
        "line": {"color": colour, "width": width, "shape": "hv" if line.shape == "step" else "linear"},
        "marker": {"color": colour, "size": np.where(parts.lonely, 4.0, 0.0) if alone and not dots else 4},
        "opacity": {"declared": 0.4, "muted": 0.55, "faint": 0.35}.get(line.role, 1.0),
    }
    if line.shape == "step" and line.kin:
        style["line"]["dash"] = "dot"
    return style


def _edge(line: Line, points: tuple[Any, Any], height: float, colour: str) -> dict[str, Any]:
    steps, values = points
    said = [str(float(value)) for value in values]
    return {
        "type": "scatter",
        "x": _compact(steps),
        "y": np.full(len(steps), height),
        "yaxis": EDGE,
        "mode": "markers",
        "marker": {
            "symbol": [_SIGNS.get(value, "triangle-down-open") for value in said],
            "size": 7,
            "color": colour,
            "line": {"color": drawing.MARKS["fault"], "width": 1},
        },
        "text": said,
        "hovertemplate": f"{safe(line.name).replace('%{', '% {')}<br>step %{{x:,}}: %{{text}}<extra></extra>",
        "meta": "edge",
    }


def _mark_points(marks: tuple[Mark, ...]) -> Iterator[dict[str, Any]]:
    """Where to point at to read what a mark says."""
    if marks:
        yield {
            "type": "scatter",
            "x": _compact(np.array([mark.first for mark in marks], np.int64)),
            "y": np.ones(len(marks)),
            "yaxis": EDGE,
            "mode": "markers",
            "cliponaxis": False,
            "marker": {"symbol": "triangle-down", "size": 8, "color": [drawing.MARKS[mark.kind] for mark in marks]},
            "text": [_wrapped(mark) for mark in marks],
            "hovertemplate": "%{text}<extra></extra>",
            "showlegend": False,
            "meta": "marks",
        }


def _wrapped(mark: Mark) -> str:
    lines = textwrap.wrap(f"{drawing.SYMBOLS[mark.kind]} step {mark.first}, {mark.label}", 56)
    return "<br>".join(safe(line) for line in [*lines[:8], *(["…"] if len(lines) > 8 else [])])
