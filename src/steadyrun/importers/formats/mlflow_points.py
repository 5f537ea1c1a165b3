"""What both of MLflow's stores have in common: points of metrics, each with a time and a step, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from steadyrun.importers.model import Row
from steadyrun.importers.told import Told

Point = tuple[int, int, float]
"""Time in milliseconds, step, value."""


def rows_of(metrics: Mapping[str, list[Point]], told: Told) -> Iterator[Row]:
    """Points in the order of their times; those with the same step next to each other are one row."""
    stepless = _stepless(metrics, told)
    points = sorted(
        ((time, step, name, value) for name, held in metrics.items() for time, step, value in held),
        key=lambda point: point[:2],
    )
    for step, same in groupby(points, key=lambda point: point[1]):
        front: dict[str, float] = {} if stepless else {"step": float(step)}
        row: dict[str, float] = {}
        for time, _, name, value in same:
            own = f"logged/{name}" if name in ("step", "timestamp") else name
            if own in row:
                yield row
                row = {}
            row = row or {**front, "timestamp": float(time)}
            row[own] = value
        yield row


def _stepless(metrics: Mapping[str, list[Point]], told: Told) -> bool:
    """MLflow writes step 0 where a program gives none: a run whose points are all there was not counted."""
    held = [point for points in metrics.values() for point in points]
    if any(step for _, step, _ in held) or len(held) == len(metrics):
        return False
    told.odd("points logged without a step", "the run is counted by its points", count=len(held))
    return True
