"""What a program logged under names of its own: one chart per scalar, grouped by the prefix of its name."""

from __future__ import annotations

import numpy as np

from steadyrun.panels import thinning
from steadyrun.panels.lines import drawn, logarithmic, natural, short
from steadyrun.panels.panel import AxisScale, Floats, Panel, Steps, XAxis
from steadyrun.signals.overview import elapsed, running_total
from steadyrun.signals.run_signals import Signals

FIRST = 201  # the number of the first chart; panels and trial plots have smaller ones
MOST = 60  # charts
UNGROUPED = "logged values"
_COMPANY = 6  # charts that share the points of a panel: each gets at most 1,800
_POINTS = 400  # of an x axis


def charts(run: Signals) -> tuple[Panel, ...]:
    """A chart for each of the program's own scalars, in the order of their groups and names."""
    names = sorted(run.own, key=lambda name: (group_of(name) != UNGROUPED, group_of(name), natural(name)))
    company = max(_COMPANY, len(names[:MOST]))
    return tuple(_chart(run, name, FIRST + number, company) for number, name in enumerate(names[:MOST]))


def left_out(run: Signals) -> int:
    return max(0, len(run.own) - MOST)


def group_of(name: str) -> str:
    """The prefix of a name: `eval/accuracy` is in `eval`."""
    return short(name.partition("/")[0]) if "/" in name.strip("/") else UNGROUPED


def _chart(run: Signals, name: str, number: int, company: int) -> Panel:
    line = drawn(run.raw(name), name, company=company).line
    spread = line.values[np.isfinite(line.values) & (line.values > 0)]
    wide = logarithmic([line]) and len(spread) > 0 and float(spread.max()) > 1e3 * float(spread.min())
    return Panel(number, f"chart-{number - FIRST + 1}", short(name), group_of(name), AxisScale("", log=wide), (line,))


def x_axes(run: Signals) -> tuple[XAxis, ...]:
    """What the steps of a run can be replaced by: the time since its start, the tokens seen."""
    scales = (("time", "s", "loss", elapsed), ("tokens", "", "tokens", running_total))
    return tuple(
        _axis(name, unit, run.raw(series).steps, values)
        for name, unit, series, scale in scales
        if run.has(series) and (values := scale(run.raw(series))) is not None
    )


def _axis(name: str, unit: str, steps: Steps, values: Floats) -> XAxis:
    kept = np.unique(np.concatenate([thinning.places(values, _POINTS), [0, len(values) - 1]]).astype(int))
    return XAxis(name, unit, steps[kept], values[kept])
