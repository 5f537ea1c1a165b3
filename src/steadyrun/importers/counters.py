"""Which column counts the steps of a log: one that counts on, rather than one that measures.

A counter may start over with every epoch or run, and points of several processes may be out of order. What goes up and
down without such an order is measured, whatever it is called: the `steps` of an episode are its length.
"""

from __future__ import annotations

import numpy as np

from steadyrun.importers.log_rows import LogRows
from steadyrun.importers.row_marks import Flags, floats, guided
from steadyrun.importers.series_roles import STEP, rank
from steadyrun.signals.curves import Floats

_FEWEST = 10  # points: fewer show no order
_UP_AND_DOWN = 0.25  # of the points are below the one before: a random number falls at half of them
_ORDERLY = 0.5  # of the falls are alike: from the end of an epoch, to the start of a run, or by the lag of a process

FEWEST_EPOCHS = 3  # of a run whose points are whole epochs: shorter stretches are epochs that start over
_APART = 0.5  # distinct counts per point: below it most points share their count with another


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
    tops, bottoms = counts[:-1][falls], counts[1:][falls]
    return max(_commonest(tops), _commonest(bottoms), _commonest(tops - bottoms)) < _ORDERLY


def never_falls(packs: list[LogRows], name: str, epoch: str | None, guides: tuple[str, ...]) -> bool:
    """Whether a column counts on through all the points."""
    counts, falls = _falls(packs, name, epoch, guides)
    return len(counts) > 1 and not np.any(falls)


def tells_apart(packs: list[LogRows], name: str, guides: tuple[str, ...]) -> bool:
    """Whether a column has another count at most points: an update of four episodes has one for all of them."""
    counts, _ = _falls(packs, name, None, guides)
    return len(np.unique(counts)) >= _APART * len(counts)


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


def first_again(epochs: Floats) -> Flags:
    """Whether an epoch, from the second point on, is the first one again: the run before was given up after it.

    If other epochs also come again, or hardly any goes on, a point is less than an epoch.
    """
    again = epochs[1:] == epochs[:-1]
    first: Flags = again & (epochs[1:] == epochs[:1])
    rises = int(np.sum(epochs[1:] > epochs[:-1]))
    return first if np.array_equal(again, first) and FEWEST_EPOCHS * np.sum(first) <= rises else np.zeros_like(first)
