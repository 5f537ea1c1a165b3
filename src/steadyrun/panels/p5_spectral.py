"""Panel 5: do the weight matrices grow too much?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadyrun.panels.lines import Drawn, family, highest, in_front
from steadyrun.panels.panel import AxisScale, Band, Panel, Rule
from steadyrun.panels.panel_findings import finished
from steadyrun.questions.facts import known_facts
from steadyrun.report.report import Report
from steadyrun.signals.facts import LEARNED
from steadyrun.signals.overview import Extent, widest_start
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_TIMES = 2.0  # factor on the first value: healthy growth


def build(run: Signals, report: Report) -> Panel:
    """The spectral norm of each major matrix on a log scale, and twice the start of the one that grew most."""
    lines = {name: _matrix(line) for name, line in family(run, "spectral_norm/*").items()}
    shown_lines, aside = in_front(lines, _growth)
    worst = highest(lines.values(), _growth)
    panel = Panel(
        5,
        "spectral",
        "Do the weight matrices grow too much?",
        "Spectral norm per matrix",
        AxisScale("σ₁(W)", log=True),
        shown_lines,
        bands=_bands(worst),
        rules=() if known_facts(run, report.walk.limits).start == LEARNED else _rules(run, lines),
        missing="" if lines else "call run.watch(model, optimizer) before training",
        aside=aside,
    )
    return finished(panel, run, report, _summary(lines, worst))


def _matrix(matrix: Drawn) -> Drawn:
    return replace(matrix, line=replace(matrix.line, name=matrix.line.name.removesuffix(".weight")))


def _growth(extent: Extent) -> float:
    return extent.growth


def _rules(run: Signals, lines: dict[str, Drawn]) -> tuple[Rule, ...]:
    """The largest usual start of random matrices: a start far above it means a wrong standard deviation."""
    widest = widest_start(run.listed("initial_weights"))
    if widest is None or not lines:
        return ()
    return (Rule(widest, f"largest usual start, {shown(widest)}", "dotted"),)


def _bands(worst: Drawn | None) -> tuple[Band, ...]:
    if worst is None or worst.extent is None or worst.extent.first <= 0:
        return ()
    steps = worst.line.steps[[0, -1]]
    start = worst.extent.first
    label = f"{worst.line.name}: up to {_TIMES:g} times its start"
    return (Band(steps, np.full(2, start), np.full(2, _TIMES * start), label),)


def _summary(lines: dict[str, Drawn], worst: Drawn | None) -> str:
    if worst is None or worst.extent is None:
        return ""
    reach = worst.extent
    within = sum(1 for line in lines.values() if line.extent and line.extent.growth <= _TIMES)
    return (
        f"Largest growth: {worst.line.name}, {shown(reach.growth)} times its start ({shown(reach.first)} to "
        f"{shown(reach.high)}); {within} of {len(lines)} matrices stay within {_TIMES:g} times."
    )
