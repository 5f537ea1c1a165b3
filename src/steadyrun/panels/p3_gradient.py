"""Panel 3: are the gradients stable?"""

from __future__ import annotations

import numpy as np

from steadyrun.panels.lines import Drawn, drawn
from steadyrun.panels.panel import AxisScale, Line, Panel, Rule
from steadyrun.panels.panel_findings import finished
from steadyrun.panels.rank_lines import rank_lines
from steadyrun.report.report import Report
from steadyrun.signals.missing import HOW_TO_RECORD
from steadyrun.signals.overview import extent
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown


def build(run: Signals, report: Report) -> Panel:
    """The global gradient norm before clipping on a log scale, with the clip threshold."""
    over_ranks = rank_lines(run, report, "grad_norm")
    norm = over_ranks.median if over_ranks else None
    if norm is None and run.has("grad_norm"):
        norm = drawn(run.raw("grad_norm"), "gradient norm")
    moving, fixed = _threshold(run)
    panel = Panel(
        3,
        "gradient",
        "Are the gradients stable?",
        "Gradient norm before clipping",
        AxisScale("‖g‖", log=True),
        (*moving, *([norm.line] if norm else []), *(over_ranks.single if over_ranks else ())),
        bands=over_ranks.bands if over_ranks else (),
        rules=fixed,
        missing="" if norm else HOW_TO_RECORD["grad_norm"],
    )
    return finished(panel, run, report, _summary(run, norm))


def _threshold(run: Signals) -> tuple[tuple[Line, ...], tuple[Rule, ...]]:
    """The clip threshold: a line if it changes, a rule if not."""
    if run.has("clip_threshold"):
        series = run.raw("clip_threshold")
        reach = extent(series)
        if reach is not None and reach.low < reach.high:
            return (drawn(series, "clip threshold", role="declared").line,), ()
        if reach is not None and reach.low > 0:
            return (), (Rule(reach.low, f"clipped at {shown(reach.low)}", "solid"),)
    declared = run.declared("clip")
    return (), (Rule(declared, f"clip {shown(declared)} declared"),) if declared and declared > 0 else ()


def _summary(run: Signals, norm: Drawn | None) -> str:
    if norm is None or norm.extent is None:
        return ""
    extremes = norm.extent
    clipped = run.maybe("clipped")
    engaged = "" if clipped is None else f"; {percent(float(np.mean(clipped.values)))} of the steps are clipped"
    reach = f"between {shown(extremes.low)} and {shown(extremes.high)}"
    return f"Gradient norm {shown(extremes.first)} at the start, {shown(extremes.last)} at the end, {reach}{engaged}."
