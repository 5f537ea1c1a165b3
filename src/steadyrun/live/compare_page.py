"""The data of the compare page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote_to_bytes, urlencode

from steadyrun.errors import UsageError
from steadyrun.live import pages
from steadyrun.live.followed_run import Watch
from steadyrun.live.page_patches import dumps, encoded, is_coarse
from steadyrun.panels.panel import Board, Panel
from steadyrun.panels.plotly_figure import outline
from steadyrun.panels.run_overlay import COMPARED, MOST, differences, overlaid, seed_groups
from steadyrun.store.discover import RunPlace
from steadyrun.store.layout import ENDED


class ComparePage:
    """The runs, in the given order."""

    def __init__(self, runs: Sequence[RunPlace], followed: Sequence[tuple[Watch, Board]]) -> None:
        if not 2 <= len(runs) <= MOST:
            raise UsageError(f"Choose two to {MOST} runs to compare: /compare?run=one&run=other")
        self._runs = runs
        self._watches = [watch for watch, _ in followed]
        self._boards = [board for _, board in followed]

    @property
    def span(self) -> tuple[int, int]:
        spans = [board.span for board in self._boards]
        return min(first for first, _ in spans), max(last for _, last in spans)

    def page(self) -> str:
        query = urlencode([("run", unquote_to_bytes(run.key)) for run in self._runs])
        return pages.compare_page(self._runs, self._panels(), self._parts(), query)

    def data(self) -> str:
        """The current content as JSON; `ended` means that nothing will change."""
        drawn = [panel for panel in self._panels() if not panel.missing]
        return dumps(
            {
                "span": list(self.span),
                "panels": [self._drawn(panel) for panel in drawn],
                "parts": self._parts(),
                "coarse": [panel.number for panel in drawn if is_coarse(panel)],
                "state": "",
                "ended": all(watch.state in ENDED for watch in self._watches),
            }
        )

    def panel(self, number: int, first: float, last: float) -> str:
        """One panel over some of the steps."""
        if number not in COMPARED:
            raise UsageError(f"Panel {number} cannot be compared.")
        of_runs = [watch.panel(number, first, last) for watch in self._watches]
        return dumps(self._drawn(self._overlaid(number, of_runs)))

    def _panels(self) -> list[Panel]:
        return [self._overlaid(number, [board.panels[number - 1] for board in self._boards]) for number in COMPARED]

    def _overlaid(self, number: int, of_runs: Sequence[Panel]) -> Panel:
        names = [run.name for run in self._runs]
        return overlaid(number, dict(zip(names, of_runs, strict=True)), seed_groups(self._manifests()))

    def _manifests(self) -> dict[str, Mapping[str, object]]:
        return {run.name: watch.manifest for run, watch in zip(self._runs, self._watches, strict=True)}

    def _parts(self) -> dict[str, str]:
        different = differences(self._manifests())
        return pages.compare_parts(self._runs, self._boards, self._panels(), different)

    def _drawn(self, panel: Panel) -> dict[str, object]:
        return {"number": panel.number, "figure": encoded(outline(panel, self.span))}
