"""A panel as a plotly figure: transparent, in medium tones, readable on light and dark pages."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.panels import drawing
from steadyrun.panels.panel import AxisScale, Band, Line, Mark, Panel, Rule, Steps

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


# The data of a panel as plotly traces.


EDGE = "y2"  # an axis from 0 to 1 over the whole height, for values outside the real axis
RIGHT = "y3"
_SIGNS = {"nan": "x", "inf": "triangle-up", "-inf": "triangle-down"}


def traces(panel: Panel) -> Iterator[dict[str, Any]]:
    """Bands, then lines in order, then the marks' tips. `meta` marks traces that are not lines."""
    yield from _bands(panel)
    yield from _lines(panel)
    yield from _mark_points(panel.marks)


def safe(text: str) -> str:
    """Text for plotly, which interprets tags."""
    return html.escape(text, quote=False)


def _compact(steps: Steps) -> Any:
    """Steps in four bytes if they fit, because steps are half of a page. Browsers do not decode longer integers."""
    fits = not len(steps) or (steps.min() > -(2**31) and steps.max() < 2**31)
    return steps.astype(np.int32 if fits else np.float64)


def _bands(panel: Panel) -> Iterator[dict[str, Any]]:
    for index, band in enumerate(panel.bands):
        yield _around(band) | {
            "name": safe(band.label),
            "fill": "toself",
            "fillcolor": _faint(drawing.BANDS[band.kind], drawing.OPACITIES[band.kind]),
            "line": {"width": 0},
            "mode": "lines",
            "hoverinfo": "skip",
            "legendgroup": f"band-{index}",
            "legendrank": 2000,
        }


def _faint(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


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
    in_legend: set[str] = set()
    for line, group in zip(panel.lines, drawing.groups(panel), strict=True):
        log = panel.left.log and line.axis == "left"
        for trace in _traces(line, log, drawing.colour_of(line, chosen)):
            yield trace | {"name": names[group], "legendgroup": group, "showlegend": group not in in_legend}
            in_legend.add(group)


def _traces(line: Line, log: bool, colour: str) -> Iterator[dict[str, Any]]:
    """The line itself; non-finite values at the top edge, values that a log axis cannot show at the bottom."""
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
    """The hover targets of the marks."""
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


_SHORT, _SHORTEST = 2.2, 0.5  # decades
_DASHES = {"dashed": "dash", "dotted": "dot", "solid": "solid"}


def figure(panel: Panel, span: tuple[int, int], echo: int | None = None, *, titled: bool = False) -> Figure:
    """The panel over the steps of `span`; `echo` is a step to mark, such as that of a fault on another panel."""
    from plotly.graph_objects import Figure

    drawn = outline(panel, span, echo, titled=titled)
    return Figure(drawn | {"layout": drawn["layout"] | {"template": "none"}})


def outline(panel: Panel, span: tuple[int, int], echo: int | None = None, *, titled: bool = False) -> dict[str, Any]:
    """The figure as plain data with numpy arrays, without plotly's validation, for live pages."""
    return {"data": list(traces(panel)), "layout": _layout(panel, span, echo, titled)}


def _layout(panel: Panel, span: tuple[int, int], echo: int | None, titled: bool) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 11, "color": drawing.GREY},
        "margin": {"l": 46, "r": 38 if panel.right else 8, "t": 60 if titled else 16, "b": 22},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "legend": {"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top", "font": {"size": 10}, "itemwidth": 30},
        "showlegend": titled,
        "xaxis": _step_axis(span) | ({"fixedrange": True} if panel.left.ends else {}),
        "yaxis": _axis(panel.left, drawing.decades(panel) or 0),
        "yaxis2": {"range": [0, 1], "overlaying": "y", "visible": False, "fixedrange": True},
        "shapes": [*_rules(panel.rules), *_mark_lines(panel.marks, echo)],
        "annotations": _codes(panel.marks, span),
    }
    if panel.right is not None:
        layout["yaxis3"] = _axis(panel.right, 0) | {"overlaying": "y", "side": "right", "showgrid": False}
    if titled:
        layout["title"] = {"text": safe(f"{panel.number}. {panel.title}"), "font": {"size": 14}}
    return layout


def _step_axis(span: tuple[int, int]) -> dict[str, Any]:
    first, last = span
    room = max(0.5, 0.015 * (last - first))
    return {
        "range": [first - room, last + room],
        "gridcolor": "rgba(138,143,152,0.18)",
        "zeroline": False,
        "nticks": 7,
        "tickformat": "~s" if last >= 10_000 else "d",
        "showspikes": True,
        "spikemode": "across",
        "spikethickness": 1,
        "spikedash": "dot",
        "spikecolor": drawing.GREY,
    }


def _axis(scale: AxisScale, decades: float) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "type": "log" if scale.log else "linear",
        "title": {"text": scale.title, "font": {"size": 10}, "standoff": 2},
        "gridcolor": "rgba(138,143,152,0.18)",
        "zeroline": False,
        "nticks": 6,
        "exponentformat": "e",
        "automargin": False,
    }
    if scale.ends is not None:
        low, high = (math.log10(end) if scale.log else end for end in scale.ends)
        axis |= {"range": [low, high], "autorange": False, "fixedrange": True}
        decades = high - low
    if scale.log:
        return axis | {"tickformat": "~g", "dtick": log_ticks(decades)}
    if scale.ends is not None:
        return axis
    axis |= (
        {"rangemode": "tozero", "autorangeoptions": {"include": scale.top}} if scale.top else {"rangemode": "tozero"}
    )
    return axis | ({"tickformat": "d", "dtick": max(1, round((scale.top or 4) / 4))} if scale.counts else {})


def log_ticks(decades: float) -> str | int | None:
    """Ticks for a small panel: 1, 2, 5 over a short range, powers of ten over a long one."""
    if decades > _SHORT:
        return int(-(-decades // 5))
    return "D2" if decades > _SHORTEST else None


def _rules(rules: tuple[Rule, ...]) -> Iterator[dict[str, Any]]:
    for rule in rules:
        yield {
            "type": "line",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "yref": "y",
            "y0": rule.value,
            "y1": rule.value,
            "line": {"color": drawing.GREY, "width": 1.2, "dash": _DASHES[rule.style]},
        }


def _mark_lines(marks: tuple[Mark, ...], echo: int | None) -> Iterator[dict[str, Any]]:
    for mark in marks:
        fault = mark.kind == "fault"
        style = {"color": drawing.MARKS[mark.kind], "width": 2 if fault else 1, "dash": "solid" if fault else "dot"}
        yield _upright(mark.first, style)
    if echo is not None and all(mark.first != echo for mark in marks):
        yield _upright(echo, {"color": drawing.MARKS["fault"], "width": 1, "dash": "dot"}) | {"opacity": 0.6}


def _upright(step: int, style: dict[str, Any]) -> dict[str, Any]:
    coordinates = {"xref": "x", "x0": step, "x1": step, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", "layer": "below", "line": style} | coordinates  # marks must not hide the lines


def _codes(marks: tuple[Mark, ...], span: tuple[int, int]) -> list[dict[str, Any]]:
    middle = (span[0] + span[1]) / 2
    return [
        {
            "x": step,
            "xref": "x",
            "y": 1,
            "yref": "paper",
            "yanchor": "bottom",
            "xanchor": "left" if step < middle else "right",
            "text": safe(codes),
            "showarrow": False,
            "font": {"size": 10, "color": drawing.MARKS[kind]},
        }
        for step, codes, kind in drawing.labels(marks, span, 0.25)
    ]
