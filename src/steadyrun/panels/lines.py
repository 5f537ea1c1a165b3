"""Lines from recorded series: thinned, with safe names, the most informative lines in front."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from steadyrun.panels import thinning
from steadyrun.panels.panel import Line
from steadyrun.records import Series
from steadyrun.report.phrases import one_line
from steadyrun.signals.curves import thinned
from steadyrun.signals.overview import Extent, extent, gaps, share_not_positive
from steadyrun.signals.run_signals import Signals

BUDGET = 10_000  # points of one panel
FEWEST = 200  # points of a line, whatever the number of lines
NAMED = 6  # lines with their own legend entry
MOST = 150  # lines of one panel
_BELOW = 0.05  # fraction of the values
_LONGEST = 48  # characters of a name


@dataclass(frozen=True)
class Drawn:
    """A line, and the statistics of its series before thinning."""

    line: Line
    extent: Extent | None


def logarithmic(lines: Iterable[Line]) -> bool:
    """Whether a log scale fits: almost no value is zero or negative."""
    return share_not_positive(line.values for line in lines) <= _BELOW


def drawn(series: Series, name: str, *, company: int = 1, shape: str = "line", role: str = "main") -> Drawn:
    """A series as a line; `company` is the number of lines in the panel."""
    most = min(thinning.MOST, max(FEWEST, BUDGET // max(1, company)))
    chosen_points = thinning.chosen(series.steps, series.values, most)
    reach = extent(series)
    line = Line(
        short(name),
        series.steps[chosen_points],
        series.values[chosen_points],
        shape,
        role,
        gaps=gaps(series.steps),
        total=len(series),
        not_finite=len(series) if reach is None else reach.not_finite,
    )
    return Drawn(line, reach)


def family(run: Signals, pattern: str, shape: str = "line") -> dict[str, Drawn]:
    """All series of a pattern such as `class_loss/*` as lines, named by the star, in natural order."""
    start = len(pattern) - 1
    names = sorted(run.matching(pattern), key=natural)
    return {name[start:]: drawn(run.raw(name), name[start:], company=len(names), shape=shape) for name in names}


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts blocks.2 before blocks.10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def short(name: str) -> str:
    """A name from a run, safe to show; a long name is cut in the middle."""
    safe = one_line(name)
    half = _LONGEST // 2
    return safe if len(safe) <= _LONGEST else f"{safe[:half]}…{safe[-half:]}"


def in_front(lines: dict[str, Drawn], score: Callable[[Extent], float]) -> tuple[tuple[Line, ...], str]:
    """The lines of a crowded panel: the first, the last and those with the highest score in front, the others muted.

    Also a sentence about lines that are not drawn; "" if all are.
    """
    names = list(lines)
    if len(names) <= NAMED:
        return tuple(line.line for line in lines.values()), ""
    ranked = sorted(names, key=lambda name: -_score(lines[name], score))
    chosen = list(dict.fromkeys([ranked[0], names[0], names[-1], *ranked[1:]]))[:NAMED]
    rest = [name for name in names if name not in chosen]
    kept = rest if len(names) <= MOST else [rest[index] for index in thinned(len(rest), MOST - NAMED)]
    left_out = len(rest) - len(kept)
    muted = tuple(lines[name].line.muted() for name in kept)
    aside = (
        f"{len(names) - left_out} of {len(names)} lines are drawn, including the most unusual ones." if left_out else ""
    )
    return (*muted, *(lines[name].line for name in names if name in chosen)), aside


def _score(line: Drawn, score: Callable[[Extent], float]) -> float:
    value = float("inf") if line.extent is None else score(line.extent)
    return value if value == value else float("-inf")


def highest(lines: Iterable[Drawn], score: Callable[[Extent], float]) -> Drawn | None:
    """The line with the highest finite score."""
    return max((line for line in lines if line.extent is not None), key=lambda line: _score(line, score), default=None)
