"""The fraction of dead units per layer, at the start and the end of the record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.run_signals import Signals


@dataclass(frozen=True)
class DeadFraction:
    """The fraction of dead units of one layer, in the first sample and in the last."""

    first: float
    last: float


def dead_fractions(run: Signals) -> dict[str, DeadFraction]:
    """The dead fraction of each layer whose number of units is recorded."""
    counts = run.inferred.get("hidden_units")
    totals = counts if isinstance(counts, dict) else {}
    fractions = {}
    for series in run.matching("dead_units/*"):
        name = series.partition("/")[2]
        points, units = run.maybe(series), number(totals.get(name))
        if points is not None and units:
            fractions[name] = DeadFraction(float(points.values[0]) / units, float(points.values[-1]) / units)
    return fractions


def died(run: Signals) -> float:
    """The fraction of the median layer's units that died during the run; 0 if none is recorded."""
    known = dead_fractions(run).values()
    return float(np.median([each.last - each.first for each in known])) if known else 0.0
