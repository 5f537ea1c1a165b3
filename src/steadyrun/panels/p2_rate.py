"""Panel 2: does the learning rate follow its schedule?"""

from __future__ import annotations

import numpy as np

from steadyrun.panels.lines import Drawn, drawn, in_front, natural, short
from steadyrun.panels.panel import AxisScale, Line, Panel
from steadyrun.panels.panel_findings import finished
from steadyrun.questions.facts import known_rates
from steadyrun.questions.form import Limits
from steadyrun.records import Series
from steadyrun.report.report import Report
from steadyrun.signals.curves import thinned
from steadyrun.signals.declared_schedule import Curve, agreement
from steadyrun.signals.missing import HOW_TO_RECORD, MissingSignal
from steadyrun.signals.run_signals import Signals
from steadyrun.text import percent, shown

_CLOSE = 0.05  # fraction of the peak: rates this close count as equal
_CURVE = 1000  # points of the configured schedule


def build(run: Signals, report: Report) -> Panel:
    """The recorded learning rate over the configured one."""
    groups, limit = _groups(run), report.walk.limits
    recorded, aside = in_front(groups, lambda extent: extent.high)
    panel = Panel(
        2,
        "rate",
        "Does the learning rate follow its schedule?",
        "Learning rate",
        AxisScale("learning rate", top=0.0),
        (*_configured(run, limit, groups), *recorded),
        missing="" if groups else HOW_TO_RECORD["lr/*"],
        aside=aside,
    )
    return finished(panel, run, report, _summary(run, limit, groups))


def _groups(run: Signals) -> dict[str, Drawn]:
    """The rates of the parameter groups; groups with equal rates share a line."""
    groups: list[tuple[Series, list[str]]] = []
    for name in sorted(run.matching("lr/*"), key=natural):
        series = run.raw(name)
        alike = next((group for other, group in groups if np.array_equal(other.values, series.values)), None)
        if alike is None:
            groups.append((series, [name.removeprefix("lr/")]))
        else:
            alike.append(name.removeprefix("lr/"))
    return {label: drawn(series, label, company=len(groups)) for series, label in _labelled(groups)}


def _labelled(groups: list[tuple[Series, list[str]]]) -> list[tuple[Series, str]]:
    if len(groups) == 1:
        return [(groups[0][0], "recorded")]
    return [(series, f"recorded, group {short(', '.join(names))}") for series, names in groups]


def _meant(run: Signals, limit: Limits) -> tuple[str, Curve] | None:
    """The configured schedule and its source: the config, or else a dry run of the scheduler."""
    try:
        schedule = known_rates(run, limit)
    except MissingSignal:
        return None
    if schedule.plan is not None:
        warmup = f", warmup {schedule.plan.warmup}" if schedule.plan.warmup else ""
        return f"declared: {schedule.plan.shape}{warmup}", schedule.plan.rate
    planned = schedule.planned
    return None if planned is None else ("planned by the scheduler", planned)


def _configured(run: Signals, limit: Limits, groups: dict[str, Drawn]) -> list[Line]:
    meant = _meant(run, limit)
    if not groups or meant is None:
        return []
    name, curve = meant
    steps = next(iter(groups.values())).line.steps
    # At the line's own steps, so that both have their corners at the same steps.
    at = steps[thinned(len(steps), _CURVE)]
    at = at[np.isfinite(curve(at.astype(float)))]
    return [Line(name, at, curve(at.astype(float)), role="declared", total=len(at))] if len(at) else []


def _summary(run: Signals, limit: Limits, groups: dict[str, Drawn]) -> str:
    reach = next((line.extent for line in groups.values() if line.extent), None)
    if reach is None:
        return ""
    if reach.low == reach.high:
        return f"Constant at {shown(reach.high)}{_agreement(run, limit)}."
    rises = f"rises to {shown(reach.high)} by step {reach.high_step}" if reach.high > reach.first else ""
    falls = f"{'falls' if rises else f'falls from {shown(reach.high)}'} to {shown(reach.last)}"
    parts = [rises, falls if reach.last < reach.high else ""]
    return f"The learning rate {' and '.join(part for part in parts if part)}{_agreement(run, limit)}."


def _agreement(run: Signals, limit: Limits) -> str:
    """The fraction of steps at which the rate is the configured one."""
    meant = _meant(run, limit)
    if meant is None:
        return ""
    name, curve = meant
    schedule = known_rates(run, limit)
    rates = schedule.rates if schedule.plan is not None else schedule.recorded
    rates = rates.where(np.isfinite(curve(rates.steps)))
    if not len(rates):
        return ""
    fraction = agreement(rates.steps, rates.values, curve, float(np.max(curve(rates.steps))), _CLOSE)
    who = name.partition(":")[0]
    return f", as {who}" if fraction == 1 else f"; as {who} at {percent(fraction)} of the steps"
