"""The dashboard as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any

from steadyrun.panels import drawing
from steadyrun.panels.panel import Board, Panel
from steadyrun.panels.plotly_figure import figure
from steadyrun.report.phrases import SYMBOLS

SCHEMA = 1


def page(board: Board, only: int | None = None) -> str:
    """The whole page; with `only`, just that panel and the verdict."""
    scripts = [plotly_script(), asset("view.js"), asset("dashboard.js")]
    template = environment().get_template("dashboard.html.j2")
    return str(
        template.render(
            **context(board, only),
            inline=True,
            styles=asset("dashboard.css"),
            rank_styles=asset("ranks.css"),
            scripts=scripts,
            data=script_safe(payload(board, only)),
            policy=_policy(scripts),
        )
    )


def context(board: Board, only: int | None = None) -> dict[str, Any]:
    """The variables of the templates, for static and served pages."""
    panels = _chosen(board, only)
    legends = {panel.number: drawing.legend(panel) for panel in (*panels, *board.charts)}
    trial = board.trial if only is None else None
    shared = drawing.legend(trial.plots[0]) if trial and trial.plots else []
    return {
        "board": board,
        "panels": panels,
        "legends": legends,
        "symbols": SYMBOLS,
        "trial": trial,
        "trial_legend": shared,
    }


def payload(board: Board, only: int | None = None) -> dict[str, Any]:
    """The data for `dashboard.js`: the figures as plotly's JSON, and their range of steps."""
    echo = board.leaf.step if board.leaf else None
    panels = [
        {"number": panel.number, "figure": figure(panel, board.span, echo).to_dict()} for panel in _chosen(board, only)
    ]
    if board.trial is not None and only is None:
        span = (0, board.trial.last)
        panels += [{"number": plot.number, "figure": figure(plot, span).to_dict()} for plot in board.trial.plots]
    if only is None:
        panels += [{"number": chart.number, "figure": figure(chart, board.span).to_dict()} for chart in board.charts]
    return {"schema": SCHEMA, "span": list(board.span), "panels": panels, "axes": x_axes(board)}


def x_axes(board: Board) -> list[dict[str, Any]]:
    """The scales that a reader can choose instead of steps."""
    return [
        {"name": axis.name, "unit": axis.unit, "steps": axis.steps.tolist(), "values": axis.values.tolist()}
        for axis in board.x_axes
    ]


def script_safe(data: dict[str, Any]) -> str:
    """JSON that cannot close a script element or open a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def fragment(name: str, board: Board, only: int | None = None) -> str:
    """One part of the page, such as `verdict` or a `panel`, for a live page."""
    panel = None if only is None else board.panels[only - 1]
    return str(environment().get_template(f"{name}.html.j2").render(**context(board, only), panel=panel))


@cache
def asset(name: str) -> str:
    """The text of a file in `assets`."""
    return (resources.files("steadyrun.panels") / "assets" / name).read_text("utf-8")


@cache
def plotly_script() -> str:
    """plotly.js from plotly's own wheel."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _chosen(board: Board, only: int | None) -> tuple[Panel, ...]:
    return tuple(panel for panel in board.panels if only in (None, panel.number))


def _policy(scripts: list[str]) -> str:
    """A content security policy that allows only these scripts, and no network."""
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts]
    return f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:"


@cache
def environment() -> Any:
    """The templates, with automatic escaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("steadyrun.panels"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
