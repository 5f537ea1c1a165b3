"""How far weights move per step and in the whole run, and how their size changes, by block."""

from __future__ import annotations

import numpy as np

from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Points, Signals

_HOW = "call run.watch(model, optimizer) before training"


def moving(run: Signals) -> dict[str, Points]:
    """The relative update of each block that moves; raises if none is recorded or none moves."""
    names = run.matching("update_ratio/*")
    series = {name.partition("/")[2]: points for name in names if (points := run.maybe(name)) is not None}
    if not series:
        raise MissingSignal("update_ratio/*", "the size of the updates was not recorded", _HOW)
    kept = {name: points for name, points in series.items() if float(np.max(points.values)) > 0}
    if not kept:
        raise NotApplicable("no block moves")
    return kept


def typical_move(run: Signals) -> float:
    """How far the median block moves in its median step, as a fraction of its size."""
    return float(np.median([float(np.median(points.values)) for points in moving(run).values()]))


def travel(run: Signals) -> float:
    """How far the median block moves in all steps together, as a multiple of its size, interpolated between samples."""
    return float(np.median([_sum(points) for points in moving(run).values()]))


def longest(run: Signals) -> tuple[str, float]:
    """The block that moves furthest in all steps together, and its distance."""
    return max(((name, _sum(points)) for name, points in moving(run).items()), key=lambda block: block[1])


def growth(run: Signals) -> float:
    """The size of the median block at the end, as a multiple of its size at the start."""
    return float(np.median(_ends_over_starts(run, "block_param_norm/*")))


def largest_growth(run: Signals) -> float:
    """The same for the block that grew most: a large embedding or a norm layer may hide other blocks."""
    return max(_ends_over_starts(run, "block_param_norm/*"))


def shrinking(run: Signals) -> float:
    """The same for blocks or matrices, whichever shrank more: the scales of norm layers may hide the matrices."""
    return min(growth(run), float(np.median(_ends_over_starts(run, "spectral_norm/*"))))


def _sum(points: Points) -> float:
    """The sum over all steps, linearly interpolated between the samples."""
    means = (points.values[1:] + points.values[:-1]) / 2
    return float(np.sum(means * np.diff(points.steps)) + points.values[0])


def _ends_over_starts(run: Signals, pattern: str) -> list[float]:
    """The ratio of last to first value of each series; 1 if none is known."""
    series = [points for name in run.matching(pattern) if (points := run.maybe(name)) is not None]
    return [float(points.values[-1] / points.values[0]) for points in series if points.values[0] > 0] or [1.0]
