"""The dashboard in a notebook: plotly figures, and a small cell output."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from steadyrun.errors import UsageError
from steadyrun.panels.board import board_of
from steadyrun.panels.panel import Board, Panel
from steadyrun.panels.run_overlay import COMPARED, MOST, SettingDifference, differences, overlaid, seed_groups
from steadyrun.report.phrases import SYMBOLS
from steadyrun.store.reader import open_run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SIGNS = {"green": "✓", "amber": "!", "red": "✗", "unknown": "○"}


def dashboard(run: str | os.PathLike[str], *, thresholds: Mapping[str, float] | None = None) -> Dashboard:
    """Build the dashboard of a run: seven panels and the verdict, shown by a notebook.

    `run` is a run directory. `thresholds` changes limits by their full name, as in `steadyrun.check`.
    """
    from steadyrun.report.limits import changes

    return Dashboard(board_of(run, changes(thresholds or {}, Path.cwd())))


def _answer(board: Board) -> str:
    return escape(f"{SYMBOLS[board.verdict]} {board.headline}")


class Dashboard:
    """Dashboard of a run: `.figures` are seven plotly figures, `.board` is all of it as data.

    A notebook shows the verdict, the captions and, with matplotlib, one image. An interactive figure adds plotly's
    script to the notebook, so ask for it: `steadyrun.dashboard(run).figures[0]`.
    """

    def __init__(self, board: Board) -> None:
        self.board = board

    @cached_property
    def figures(self) -> list[Figure]:
        """Panels as plotly figures, in their order."""
        from steadyrun.panels.plotly_figure import figure

        echo = self.board.leaf.step if self.board.leaf else None
        return [figure(panel, self.board.span, echo, titled=True) for panel in self.board.panels]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the dashboard to `path` as one HTML file, as `steadyrun dashboard` does; returns the path."""
        from steadyrun.panels.dashboard_page import page
        from steadyrun.store.jsonio import replace_file

        target = Path(path).expanduser()
        replace_file(target, page(self.board))
        return target

    def __repr__(self) -> str:
        return f"<steadyrun dashboard of {self.board.run!r}, {self.board.verdict}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{panel.number}</td><td style='text-align:left'>{escape(panel.title)}</td>"
            f"<td style='text-align:left;white-space:nowrap'>{escape(panel.badge)}</td>"
            f"<td style='text-align:left'>{escape(panel.missing or panel.caption)}</td></tr>"
            for panel in self.board.panels
        )
        head = f"<p><strong>{_answer(self.board)}</strong> <code>{escape(self.board.run)}</code></p>"
        hint = "<p>Interactive: <code>.figures[0]</code> and so on, or <code>.save('page.html')</code></p>"
        found = f"{self._findings()}{self._signs()}"
        return f"<div>{head}{found}{self._image()}<table>{rows}</table>{self._trial()}{hint}</div>"

    def _findings(self) -> str:
        leaf = self.board.leaf
        parts = [] if leaf is None else [leaf.message, leaf.experiment and f"To decide: {leaf.experiment}"]
        parts += [f"Fix: {leaf.fix}"] if leaf is not None and leaf.fix else []
        parts += [f"Step {each.step}, {each.kind}: {each.why}" for each in self.board.incidents_to_show]
        return "".join(f"<p>{escape(part)}</p>" for part in parts if part)

    def _signs(self) -> str:
        items = "".join(f"<li>{_SIGNS[colour]} {escape(line)}</li>" for colour, line in self.board.signs)
        return f'<ul style="list-style:none;padding-left:0">{items}</ul>' if items else ""

    def _trial(self) -> str:
        trial = self.board.trial
        if trial is None:
            return ""
        changes = "".join(f"<li>{escape(plot.title)}</li>" for plot in trial.plots)
        return f"<p><strong>{escape(trial.sentence)}</strong></p><ul>{changes}</ul>"

    def _image(self) -> str:
        if find_spec("matplotlib") is None:
            return ""
        from steadyrun.panels.image import png

        return _embedded(png(self.board, dpi=72), "the seven panels")


def compare(runs: Sequence[str | os.PathLike[str]]) -> ComparedRuns:
    """Lay two to seven runs over each other, one colour each; runs that differ in their seed alone as mean and band."""
    if not 2 <= len(runs) <= MOST:
        raise UsageError(f"compare takes a list of two to {MOST} run directories, got {len(runs)}")
    return ComparedRuns({_name(run, runs): board_of(run) for run in runs}, {_name(r, runs): _manifest(r) for r in runs})


def _name(run: str | os.PathLike[str], among: Sequence[str | os.PathLike[str]]) -> str:
    """The last part of a path, or all of it if two runs share that."""
    names = [Path(other).name for other in among]
    return Path(run).name if names.count(Path(run).name) == 1 else os.fspath(run)


def _manifest(run: str | os.PathLike[str]) -> Mapping[str, object]:
    return open_run(run).manifest


class ComparedRuns:
    """Several runs on the same panels. `.figures` are plotly figures, `.differences` the settings that differ."""

    def __init__(self, boards: Mapping[str, Board], manifests: Mapping[str, Mapping[str, object]]) -> None:
        self.boards = dict(boards)
        self.differences: list[SettingDifference] = differences(manifests)
        self._groups = seed_groups(manifests)

    @property
    def panels(self) -> list[Panel]:
        """The panels that at least one of the runs has, with the lines of all."""
        every = [
            overlaid(number, {run: board.panels[number - 1] for run, board in self.boards.items()}, self._groups)
            for number in COMPARED
        ]
        return [panel for panel in every if not panel.missing]

    @property
    def span(self) -> tuple[int, int]:
        spans = [board.span for board in self.boards.values()]
        return min(first for first, _ in spans), max(last for _, last in spans)

    @cached_property
    def figures(self) -> list[Figure]:
        """The panels as plotly figures."""
        from steadyrun.panels.plotly_figure import figure

        return [figure(panel, self.span, titled=True) for panel in self.panels]

    def __repr__(self) -> str:
        return f"<steadyrun comparison of {', '.join(self.boards)}>"

    def _repr_html_(self) -> str:
        verdicts = "".join(
            f"<tr><td style='text-align:left'>{escape(run)}</td><td style='text-align:left'>{_answer(board)}</td></tr>"
            for run, board in self.boards.items()
        )
        head = "".join(f"<th>{escape(run)}</th>" for run in self.boards)
        rows = "".join(
            f"<tr><th>{escape(each.name)}</th>{''.join(f'<td>{escape(value)}</td>' for value in each.values)}</tr>"
            for each in self.differences
            if each.set_by_hand
        )
        table = f"<table><tr><th>setting</th>{head}</tr>{rows}</table>" if rows else ""
        hint = "<p>Interactive: <code>.figures[0]</code> and so on</p>"
        return f"<div><table>{verdicts}</table>{self._image()}{table}{hint}</div>"

    def _image(self) -> str:
        if find_spec("matplotlib") is None or not self.panels:
            return ""
        from steadyrun.panels.image import encoded, overlay

        return _embedded(encoded(overlay(self.panels, self.span), 72), "the runs over each other")


def _embedded(image: bytes, words: str) -> str:
    encoded = base64.b64encode(image).decode()
    return f'<img alt="{words}" style="max-width:100%" src="data:image/png;base64,{encoded}">'
