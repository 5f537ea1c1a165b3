"""The pages and the files they load. The templates escape everything from a run."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from steadyrun.panels import drawing
from steadyrun.panels.dashboard_page import asset as panel_asset
from steadyrun.panels.dashboard_page import context, environment, plotly_script
from steadyrun.panels.panel import Board, Panel
from steadyrun.panels.run_overlay import SettingDifference
from steadyrun.report.phrases import SYMBOLS
from steadyrun.store.discover import RunPlace

_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_OURS = ("index.js", "live.js", "live.css")
ASSETS = ("plotly.js", "view.js", "dashboard.js", "dashboard.css", "ranks.css", *_OURS)


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file of the pages, compressed, and its type."""
    return gzip.compress(_text(name).encode(), 6, mtime=0), _TYPES[name.rpartition(".")[2]]


@cache
def address(name: str) -> str:
    """The URL of a file; it changes with the content, so that browsers may cache it."""
    return f"/assets/{name}?v={hashlib.sha256(_text(name).encode()).hexdigest()[:12]}"


def index_page(root: str) -> str:
    return _rendered("index.html.j2", root=root)


def run_page(board: Board, run: RunPlace) -> str:
    return _rendered("run.html.j2", **context(board), run=run)


def compare_page(runs: Sequence[RunPlace], panels: Sequence[Panel], parts: dict[str, str], query: str) -> str:
    return _rendered("compare.html.j2", runs=runs, panels=panels, legends=_legends(panels), parts=parts, query=query)


def compare_parts(
    runs: Sequence[RunPlace], boards: Sequence[Board], panels: Sequence[Panel], differences: list[SettingDifference]
) -> dict[str, str]:
    """The parts of the page that change while the runs continue."""
    colours = [drawing.COLOURS[number % len(drawing.COLOURS)] for number in range(len(runs))]
    cards = list(zip(runs, boards, colours, strict=True))
    parts = {
        "verdict": _rendered("verdicts.html.j2", runs=cards, symbols=SYMBOLS),
        "differences": _rendered("differences.html.j2", runs=runs, differences=differences),
    }
    for panel in panels:
        parts[f"panel-{panel.number}"] = _rendered("panel.html.j2", panel=panel, legends=_legends([panel]))
    return parts


def _legends(panels: Sequence[Panel]) -> dict[int, list[drawing.LegendEntry]]:
    return {panel.number: drawing.legend(panel) for panel in panels}


def _rendered(name: str, **values: Any) -> str:
    return str(_environment().get_template(name).render(asset=address, **values))


@cache
def _environment() -> Any:
    """The templates of the panels and of the server."""
    from jinja2 import ChoiceLoader, PackageLoader

    shared = environment()
    return shared.overlay(loader=ChoiceLoader([PackageLoader("steadyrun.live"), shared.loader]))


def _text(name: str) -> str:
    if name == "plotly.js":
        return plotly_script()
    if name in _OURS:
        return (resources.files("steadyrun.live") / "assets" / name).read_text("utf-8")
    return panel_asset(name)
