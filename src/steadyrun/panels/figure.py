"""A panel as a plotly figure: transparent, in middle tones, so that it reads on light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from steadyrun.panels import drawing
from steadyrun.panels.model import Mark, Panel, Rule, Scale
from steadyrun.panels.traces import safe, traces

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHORT, _SHORTEST = 2.2, 0.5  # decades
_DASHES = {"dashed": "dash", "dotted": "dot", "solid": "solid"}


def figure(panel: Panel, span: tuple[int, int], echo: int | None = None, *, titled: bool = False) -> Figure:
    """The panel over the steps of `span`; `echo` is a step to point at, such as that of a fault on another panel."""
    from plotly.graph_objects import Figure

    drawn = outline(panel, span, echo, titled=titled)
    return Figure(drawn | {"layout": drawn["layout"] | {"template": "none"}})


def outline(panel: Panel, span: tuple[int, int], echo: int | None = None, *, titled: bool = False) -> dict[str, Any]:
    """The same as plain data, with numpy arrays in it: what a live page sends needs no checking by plotly each time."""
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
        "xaxis": _step_axis(span),
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


def _axis(scale: Scale, decades: float) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "type": "log" if scale.log else "linear",
        "title": {"text": scale.title, "font": {"size": 10}, "standoff": 2},
        "gridcolor": "rgba(138,143,152,0.18)",
        "zeroline": False,
        "nticks": 6,
        "exponentformat": "e",
        "automargin": False,
    }
    if scale.log:
        return axis | {"tickformat": "~g", "dtick": log_ticks(decades)}
    axis |= (
        {"rangemode": "tozero", "autorangeoptions": {"include": scale.top}} if scale.top else {"rangemode": "tozero"}
    )
    return axis | ({"tickformat": "d", "dtick": max(1, round((scale.top or 4) / 4))} if scale.counts else {})


def log_ticks(decades: float) -> str | int | None:
    """Ticks that fit beside a small panel: 1, 2, 5 over a short range, powers of ten over a long one."""
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
            "label": {
                "text": f"\u00a0{safe(rule.label)}\u00a0",  # a little away from the ticks
                "textposition": rule.place,
                "xanchor": "left" if rule.place == "start" else "right",
                "yanchor": "top" if rule.below else "bottom",
                "padding": 2,
                "font": {"size": 10, "color": drawing.GREY},
            },
        }


def _mark_lines(marks: tuple[Mark, ...], echo: int | None) -> Iterator[dict[str, Any]]:
    for mark in marks:
        fault = mark.kind == "fault"
        style = {"color": drawing.MARKS[mark.kind], "width": 2 if fault else 1, "dash": "solid" if fault else "dot"}
        yield _upright(mark.first, style)
    if echo is not None and all(mark.first != echo for mark in marks):
        yield _upright(echo, {"color": drawing.MARKS["fault"], "width": 1, "dash": "dot"}) | {"opacity": 0.6}


def _upright(step: int, style: dict[str, Any]) -> dict[str, Any]:
    place = {"xref": "x", "x0": step, "x1": step, "yref": "paper", "y0": 0, "y1": 1}
    return {"type": "line", "layer": "below", "line": style} | place  # what is marked must be seen


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
