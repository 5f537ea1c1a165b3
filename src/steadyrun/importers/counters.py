"""Which column counts the steps of a log: one that counts on, rather than one that measures.

A counter may start over with every epoch or run, and points of several processes may be out of order. What goes up and
down without such an order is measured, whatever it is called: the `steps` of an episode are its length.
"""

from __future__ import annotations

import numpy as np

from steadyrun.importers.log_rows import LogRows
from steadyrun.importers.row_marks import floats, guided
from steadyrun.importers.series_roles import STEP, rank
from steadyrun.signals.curves import Floats

_FEWEST = 10  # points: fewer show no order
_UP_AND_DOWN = 0.25  # of the points are below the one before: a random number falls at half of them
_ORDERLY = 0.5  # of the falls are alike: from one count, the end of an epoch, or by one lag, that of a process


def step_columns(names: list[str], chosen: str | None) -> list[str]:
    """The columns that may count steps by their names, the best first; none if the log has no step."""
    if chosen not in names:
        return []
    others = sorted((order, name) for name in names if (order := rank(STEP, name)) is not None)
    return [chosen, *(name for _, name in others if name != chosen)]


def measures(packs: list[LogRows], name: str, epoch: str | None, guides: tuple[str, ...]) -> bool:
    """Whether a column goes up and down from point to point, in no order that counters have."""
    counts, falls = _falls(packs, name, epoch, guides)
    if len(counts) < _FEWEST or np.sum(falls) < _UP_AND_DOWN * len(counts):
        return False
    tops, sizes = counts[:-1][falls], (counts[:-1] - counts[1:])[falls]
    return max(_commonest(tops), _commonest(sizes)) < _ORDERLY


def never_falls(packs: list[LogRows], name: str, epoch: str | None, guides: tuple[str, ...]) -> bool:
    """Whether a column counts on through all the points."""
    counts, falls = _falls(packs, name, epoch, guides)
    return len(counts) > 1 and not np.any(falls)


def _falls(packs: list[LogRows], name: str, epoch: str | None, guides: tuple[str, ...]) -> tuple[Floats, np.ndarray]:
    """The counts of all points, and whether each is below the one before though no epoch begins."""
    points = [guided(rows, guides) for rows in packs]
    counts = np.concatenate([floats(rows, name)[there] for rows, there in zip(packs, points, strict=True)])
    epochs = np.concatenate([floats(rows, epoch)[there] for rows, there in zip(packs, points, strict=True)])
    known = np.isfinite(counts)
    counts, epochs = counts[known], epochs[known]
    with np.errstate(invalid="ignore"):
        falls: np.ndarray = (counts[1:] < counts[:-1]) & ~(epochs[1:] > epochs[:-1])
    return counts, falls


def _commonest(values: Floats) -> float:
    """The fraction of the values that are the commonest one."""
    return float(np.max(np.unique(values, return_counts=True)[1])) / len(values)
