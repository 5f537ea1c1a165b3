"""Panel 4: are the activations balanced across depth?"""

from __future__ import annotations

from steadyrun.panels import thinning
from steadyrun.panels.lines import Drawn, drawn, in_front, natural
from steadyrun.panels.panel import AxisScale, Band, Panel
from steadyrun.panels.panel_findings import finished
from steadyrun.report.report import Report
from steadyrun.signals.depth import magnitudes
from steadyrun.signals.missing import HOW_TO_RECORD, MissingSignal
from steadyrun.signals.overview import Spread
from steadyrun.signals.run_signals import Signals
from steadyrun.text import shown

_TIMES = 3.0  # largest ratio between the residual blocks of a healthy model


def build(run: Signals, report: Report) -> Panel:
    """The mean magnitude of each block's output, on a log scale so that ratios are equal distances."""
    lines, spread = _read(run)
    shown_lines, aside = in_front(lines, lambda extent: extent.high)
    panel = Panel(
        4,
        "activations",
        "Are the activations balanced across depth?",
        "Mean |output| per block",
        AxisScale("mean |activation|", log=True),
        shown_lines,
        bands=_bands(spread),
        missing="" if lines else HOW_TO_RECORD["activation/*"],
        aside=aside,
    )
    return finished(panel, run, report, _summary(lines, spread))


def _read(run: Signals) -> tuple[dict[str, Drawn], Spread]:
    """Every block in the order of the forward pass, and the spread of the residual blocks."""
    recorded = {name.removeprefix("activation/"): name for name in run.matching("activation/*")}
    blocks = [str(entry.get("name")) for entry in run.listed("blocks")]
    order = [name for name in blocks if name in recorded]
    order += sorted((name for name in recorded if name not in blocks), key=natural)
    residual = _residual(run)
    lines, spread = {}, Spread()
    for name in order:
        series = run.raw(recorded[name])
        lines[name] = drawn(series, name, company=len(order))
        if name in residual:
            spread.add(series)
    return lines, spread


def _residual(run: Signals) -> set[str]:
    try:
        return set(magnitudes(run))
    except MissingSignal:
        return set()


def _bands(spread: Spread) -> tuple[Band, ...]:
    if spread.widest() is None:
        return ()
    low, high = spread.within(_TIMES)
    kept = thinning.chosen(spread.steps, low, thinning.MOST // 2)
    return (Band(spread.steps[kept], low[kept], high[kept], f"residual blocks within {_TIMES:g} times of each other"),)


def _summary(lines: dict[str, Drawn], spread: Spread) -> str:
    widest = spread.widest()
    if widest is not None:
        step, times = widest
        return (
            f"The outputs of {spread.count} residual blocks differ by a factor of at most {shown(times)} (step {step})."
        )
    ends = [(name, line.extent.last) for name, line in lines.items() if line.extent]
    if not ends:
        return ""
    low, high = min(ends, key=lambda end: end[1]), max(ends, key=lambda end: end[1])
    return f"Mean outputs at the end: {shown(low[1])} to {shown(high[1])}."
