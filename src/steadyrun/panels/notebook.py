"""The dashboard in a notebook: plotly figures, and a small cell output."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from functools import cached_property
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from steadyrun.panels.board import board_of
from steadyrun.panels.panel import Board

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def dashboard(run: str | os.PathLike[str], *, thresholds: Mapping[str, float] | None = None) -> Dashboard:
    """Build the dashboard of a run: seven panels and the verdict, shown by a notebook.

    `run` is a run directory. `thresholds` changes limits by their full name, as in `steadyrun.check`.
    """
    from steadyrun.report.limits import changes

    return Dashboard(board_of(run, changes(thresholds or {}, Path.cwd())))


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
        head = f"<p><strong>{escape(self.board.headline)}</strong> <code>{escape(self.board.run)}</code></p>"
        hint = "<p>Interactive: <code>.figures[0]</code> to <code>[6]</code>, or <code>.save('page.html')</code></p>"
        return f"<div>{head}{self._image()}<table>{rows}</table>{self._trial()}{hint}</div>"

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

        encoded = base64.b64encode(png(self.board, dpi=72)).decode()
        return f'<img alt="the seven panels" style="max-width:100%" src="data:image/png;base64,{encoded}">'
