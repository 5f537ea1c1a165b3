"""The page of a run as plain JSON, and the changes from one look to the next."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from steadyrun.panels.dashboard_page import fragment, x_axes
from steadyrun.panels.panel import Board, Panel
from steadyrun.panels.plotly_figure import outline

Figure = dict[str, Any]
_GROWING = ("x", "y")


@dataclass(frozen=True)
class Shown:
    """One state of a run's page: the figures by panel, the HTML by part, the range of steps."""

    span: tuple[int, int]
    figures: dict[int, Figure]
    parts: dict[str, str]
    coarse: tuple[int, ...]  # panels that show more when zoomed
    state: str = ""
    axes: tuple[dict[str, Any], ...] = ()


def shown(board: Board) -> Shown:
    """The page of a dashboard."""
    echo = board.leaf.step if board.leaf else None
    drawn = [panel for panel in board.panels if not panel.missing]
    parts = {f"panel-{panel.number}": fragment("panel", board, panel.number) for panel in board.panels}
    figures = {panel.number: outline(panel, board.span, echo) for panel in drawn}
    if board.trial is not None:
        figures |= {plot.number: outline(plot, (0, board.trial.last)) for plot in board.trial.plots}
    figures |= {chart.number: outline(chart, board.span) for chart in board.charts}
    parts_of_all = ("verdict", "reading", "trial", "learned_text", "charts", "findings")
    names = (*parts_of_all, *(("ranks", "rank_table") if board.ranks else ()))
    whole_parts = {name.replace("_", "-"): fragment(name, board) for name in names}
    return Shown(
        board.span,
        figures,
        {**whole_parts, **parts},
        tuple(panel.number for panel in drawn if is_coarse(panel)),
        board.standing,
        tuple(x_axes(board)),
    )


def is_coarse(panel: Panel) -> bool:
    return any(line.total > len(line.steps) for line in panel.lines)


def whole(now: Shown) -> dict[str, Any]:
    """Everything, for a new page."""
    panels = [{"number": number, "figure": encoded(figure)} for number, figure in now.figures.items()]
    return {
        "span": list(now.span),
        "state": now.state,
        "coarse": now.coarse,
        "panels": panels,
        "parts": now.parts,
        "axes": now.axes,
    }


def patch(before: Shown, now: Shown) -> dict[str, Any]:
    """The changes to a page that shows `before`: HTML parts, whole figures, or points at the end of lines."""
    panels = [
        change
        for number, figure in now.figures.items()
        if (change := _figure_patch(number, before.figures.get(number), figure)) is not None
    ]
    parts = {name: html for name, html in now.parts.items() if before.parts.get(name) != html}
    return {"span": list(now.span), "state": now.state, "coarse": now.coarse, "panels": panels, "parts": parts}


def dumps(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def encoded(value: Any) -> Any:
    """Encode numpy arrays as plotly does: base64 of their bytes, and their type."""
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str[1:], "bdata": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, dict):
        return {key: encoded(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [encoded(item) for item in value] if isinstance(value, list | tuple) else value


def _figure_patch(number: int, before: Figure | None, now: Figure) -> dict[str, Any] | None:
    if before is None or len(before["data"]) != len(now["data"]):
        return {"number": number, "figure": encoded(now)}
    traces = {}
    for index, (old, new) in enumerate(zip(before["data"], now["data"], strict=True)):
        if (change := _trace_patch(old, new)) is not None:
            traces[str(index)] = change
    layout = {} if before["layout"] == now["layout"] else {"layout": encoded(now["layout"])}
    return {"number": number, "traces": traces, **layout} if traces or layout else None


def _trace_patch(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any] | None:
    """None if nothing changes; the points to add; else the trace."""
    if same(_style(old), _style(new)) and all(_begins(new[key], old[key]) for key in _GROWING):
        start = len(old["x"])
        return {"add": {key: encoded(new[key][start:]) for key in _GROWING}} if len(new["x"]) > start else None
    return {"trace": encoded(new)}


def _style(trace: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in trace.items() if key not in _GROWING}


def _begins(new: Any, old: Any) -> bool:
    return new.dtype == old.dtype and len(new) >= len(old) and np.array_equal(new[: len(old)], old, equal_nan=True)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and np.array_equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
