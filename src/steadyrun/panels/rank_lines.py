"""One quantity of a job of several processes as lines: the median over the ranks, their range, the odd ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from steadyrun.panels import thinning
from steadyrun.panels.lines import Drawn, drawn
from steadyrun.panels.panel import Band, Line
from steadyrun.panels.panel_findings import odd_ranks
from steadyrun.records import Series
from steadyrun.report.report import Report
from steadyrun.signals.rank_spread import RankSpread, farthest, rank_series, rank_spread
from steadyrun.signals.ranks import Ranks
from steadyrun.signals.run_signals import Signals

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
    spread = None if ranks is None else rank_spread(ranks, name)
    if ranks is None or spread is None:
        return None
    median = Series(name, spread.steps, spread.median, np.full(len(spread.steps), np.nan))
    words = f"{label}, median of {spread.ranks} ranks" if label else f"median of {spread.ranks} ranks"
    band = _band(spread)
    return RankLines(drawn(median, words), _single(ranks, report, name) if band else (), band)


def _band(spread: RankSpread) -> tuple[Band, ...]:
    first, last = thinning.visible()
    steps, low, high = spread.between(first, last).envelope(_WIDEST)
    return (Band(steps, low, high, f"ranks, {spread.words}", "ranks"),) if np.any(high > low) else ()


def _single(ranks: Ranks, report: Report, name: str) -> tuple[Line, ...]:
    """The rank that differs, in the colour of findings; if findings name several, each in a colour of its own."""
    named = [rank for rank in odd_ranks(report, ranks.world)[0] if rank in ranks.present]
    if not named:
        far = farthest(ranks, name)
        named = [] if far is None else [far]
    lines = [_line(ranks, rank, name) for rank in named[:_EACH]]
    kept = tuple(line for line in lines if line is not None)
    return tuple(replace(line, role="odd") for line in kept) if len(kept) == 1 else kept


def _line(ranks: Ranks, rank: int, name: str) -> Line | None:
    series = rank_series(ranks, rank, name)
    return None if series is None else drawn(series, f"rank {rank}", company=_EACH).line
