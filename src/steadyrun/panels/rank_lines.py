"""One quantity of a job of several processes as lines: the median over the ranks, their range, the odd ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from steadyrun.panels import thinning
from steadyrun.panels.lines import Drawn, drawn
from steadyrun.panels.panel import STEP_TIME, AxisScale, Band, Line, Panel
from steadyrun.panels.panel_findings import odd_ranks
from steadyrun.records import Series
from steadyrun.report.report import Report
from steadyrun.signals.rank_spread import RankSpread, farthest, rank_series, rank_spread
from steadyrun.signals.ranks import Matrix, Ranks
from steadyrun.signals.run_signals import Signals
from steadyrun.signals.step_times import own_work

_STEP_TIME_NUMBER = 200  # after the panels and trial plots, before the charts
_WIDEST = 500  # stretches of a band: a panel has about as many pixels
_EACH = 4  # ranks with lines of their own


@dataclass(frozen=True)
class RankLines:
    """The median as the main line, the lines of single ranks, and the band."""

    median: Drawn
    single: tuple[Line, ...]
    bands: tuple[Band, ...]


def rank_lines(run: Signals, report: Report, name: str, label: str = "") -> RankLines | None:
    """A series over the ranks; None if the job has one process, or fewer than two ranks recorded it."""
    ranks = run.ranks
    spread = None if ranks is None else rank_spread(matrix := ranks.matrix(name))
    if ranks is None or spread is None:
        return None
    odd = _odd(ranks, report, matrix, spread)
    series = {rank: rank_series(ranks, rank, name) for rank in odd}
    return _lines(spread, {rank: each for rank, each in series.items() if each is not None}, label)


def step_time_chart(run: Signals, report: Report) -> tuple[Panel, ...]:
    """The own work of each rank per step beside the whole step; nothing if times were not recorded."""
    work = None if run.ranks is None else own_work(run.ranks)
    spread = None if work is None else rank_spread(work)
    if run.ranks is None or work is None or spread is None:
        return ()
    odd = _odd(run.ranks, report, work, spread)
    columns = {rank: Series("", work.steps, work.of([rank]).values[:, 0], _no_times(work.steps)) for rank in odd}
    lines = _lines(spread, columns, "own work")
    whole = drawn(run.raw("step_time"), "whole step", role="beside").line if run.has("step_time") else None
    drawn_lines = (*((whole,) if whole else ()), lines.median.line, *lines.single)
    title = "Step time: own work of each rank"
    return (Panel(_STEP_TIME_NUMBER, STEP_TIME, title, "ranks", AxisScale("s"), drawn_lines, bands=lines.bands),)


def _lines(spread: RankSpread, odd: dict[int, Series], label: str) -> RankLines:
    words = f"{label}, median of {spread.ranks} ranks" if label else f"median of {spread.ranks} ranks"
    median = drawn(Series("", spread.steps, spread.median, _no_times(spread.steps)), words)
    bands = _band(spread)
    single = tuple(drawn(series, f"rank {rank}", company=_EACH).line for rank, series in odd.items()) if bands else ()
    return RankLines(median, tuple(replace(line, role="odd") for line in single) if len(single) == 1 else single, bands)


def _no_times(
    steps: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.full(len(steps), np.nan)


def _band(spread: RankSpread) -> tuple[Band, ...]:
    first, last = thinning.visible()
    steps, low, high = spread.between(first, last).envelope(_WIDEST)
    return (Band(steps, low, high, f"ranks, {spread.words}", "ranks"),) if np.any(high > low) else ()


def _odd(ranks: Ranks, report: Report, matrix: Matrix, spread: RankSpread) -> tuple[int, ...]:
    """The ranks that a finding names, or the one that is farthest from the others; a few of many."""
    named = tuple(rank for rank in odd_ranks(report, ranks.world)[0] if rank in matrix.ranks)
    far = None if named else farthest(matrix, spread)
    return named[:_EACH] if far is None else (far,)
