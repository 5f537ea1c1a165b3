"""A panel as characters: a small plot for a terminal, in braille or in plain ASCII."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from steadyrun.panels.drawing import Cut, cut
from steadyrun.panels.panel import Floats, Line, Mark, Panel, Steps

# The dots of a braille character, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_ASCII = {0: " ", 1: "'", 2: ".", 3: ":"}
NOT_FINITE = "!"
_GRAVITY = ("fault", "suspect", "warning", "note", "incident")


@dataclass(frozen=True)
class Canvas:
    """The characters of a plot by row, and the index of the line each belongs to; -1 for none."""

    rows: tuple[str, ...]
    owners: tuple[tuple[int, ...], ...]
    low: float | None
    high: float | None


def plot(panel: Panel, span: tuple[int, int], width: int, height: int, *, ascii_only: bool = False) -> Canvas:
    """The panel's lines on `width` x `height` characters; non-finite values are a `!` in the first row."""
    lines = [line for line in panel.lines if line.axis == "left"] or list(panel.lines)
    cuts = [cut(line, panel.left.log) for line in lines]
    ends = _range(panel, cuts)
    grid = _Grid(span, ends, panel.left.log, width, height, ascii_only)
    for index in sorted(range(len(lines)), key=lambda index: _rank(lines[index])):
        grid.draw(index, cuts[index], stepped=lines[index].shape == "step")
    return grid.canvas(ends)


def axis(panel: Panel, span: tuple[int, int], width: int, *, ascii_only: bool = False) -> str:
    """The step axis: a rule with the most severe mark at each position."""
    symbols = dict(zip(_GRAVITY, "x^!!+" if ascii_only else "✗▲!!•", strict=True))
    columns = list(("-" if ascii_only else "─") * width)
    for mark in sorted(panel.marks, key=lambda mark: -_GRAVITY.index(mark.kind)):
        columns[_column(mark, span, width)] = symbols[mark.kind]
    return "".join(columns)


def _column(mark: Mark, span: tuple[int, int], width: int) -> int:
    share = (mark.first - span[0]) / max(1, span[1] - span[0])
    return min(width - 1, max(0, round(share * (width - 1))))


def _rank(line: Line) -> int:
    """Lines in front are drawn last."""
    return ("declared", "muted", "faint", "main", "odd").index(line.role)


def _range(panel: Panel, cuts: Sequence[Cut]) -> tuple[float, float] | None:
    values = [line.values[np.isfinite(line.values)] for line in cuts]
    ends = [(float(v.min()), float(v.max())) for v in values if len(v)]
    if not ends:
        return None
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return (low, high) if panel.left.log else (min(0.0, low), max(high, panel.left.top or 0.0))


class _Grid:
    """Dots: two by four to a character in braille, one by two in ASCII."""

    def __init__(
        self, span: tuple[int, int], ends: tuple[float, float] | None, log: bool, width: int, height: int, plain: bool
    ) -> None:
        self._span, self._log, self._plain = span, log, plain
        self._across, self._down = (1, 2) if plain else (2, 4)
        self._width, self._height = width, height
        self._ends = None if ends is None else (self._level(ends[0]), self._level(ends[1]))
        self._cells = np.zeros((height, width), int)
        self._owners = np.full((height, width), -1)
        self._bad: dict[int, int] = {}  # columns with a non-finite value, and its line

    def draw(self, owner: int, line: Cut, *, stepped: bool) -> None:
        """All dots of a line, from its minimum to its maximum in every column."""
        for step in line.not_finite[0]:
            self._bad[int(self._x(np.array([step]))[0]) // self._across] = owner
        before: tuple[int, int] | None = None
        for x, low, high, last in self._columns(line):
            if before is not None and x > before[0] + 1:
                self._join(owner, before, (x, low if stepped else (low + high) // 2), stepped)
            if before is not None and x == before[0] + 1:  # no gap between two columns
                low, high = min(low, before[1] + 1), max(high, before[1] - 1)
            self._dots(owner, x, low, high)
            before = (x, last)

    def canvas(self, ends: tuple[float, float] | None) -> Canvas:
        rows = [[_ASCII[cell] if self._plain else chr(_BLANK + cell) for cell in row] for row in self._cells]
        for column, owner in self._bad.items():
            rows[0][column] = NOT_FINITE
            self._owners[0, column] = owner
        shown = tuple("".join(row).replace(chr(_BLANK), " ") for row in rows)
        low, high = ends or (None, None)
        return Canvas(shown, tuple(tuple(int(owner) for owner in row) for row in self._owners), low, high)

    def _columns(self, line: Cut) -> Iterator[tuple[int, int, int, int]]:
        """Column by column: the lowest, the highest and the last dot."""
        finite = np.isfinite(line.values)
        if self._ends is None or not np.any(finite):
            return
        x, y = self._x(line.steps[finite]), self._y(line.values[finite])
        starts = np.flatnonzero(np.append(True, np.diff(x) > 0))
        lows, highs = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
        lasts = y[np.append(starts[1:], len(y)) - 1]
        for column, low, high, last in zip(x[starts], lows, highs, lasts, strict=True):
            yield int(column), int(low), int(high), int(last)

    def _join(self, owner: int, start: tuple[int, int], end: tuple[int, int], stepped: bool) -> None:
        for x in range(start[0] + 1, end[0]):
            share = 0.0 if stepped else (x - start[0]) / (end[0] - start[0])
            y = round(start[1] + share * (end[1] - start[1]))
            self._dots(owner, x, y, y)

    def _dots(self, owner: int, x: int, low: int, high: int) -> None:
        for y in range(low, high + 1):
            row, column = self._height - 1 - y // self._down, x // self._across
            from_top = self._down - 1 - y % self._down
            self._cells[row, column] |= 1 << from_top if self._plain else _DOTS[from_top][x % 2]
            self._owners[row, column] = owner

    def _x(
        self, steps: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        first, last = self._span
        most = self._width * self._across - 1
        share = (steps - first) / max(1, last - first)
        return np.clip(np.round(share * most), 0, most).astype(np.int64)

    def _y(self, values: Floats) -> Steps:
        assert self._ends is not None
        low, high = self._ends
        most = self._height * self._down - 1
        levels = np.log10(values) if self._log else values
        halves = levels / 2 - low / 2  # the difference of the largest numbers is infinite
        share = halves / (high / 2 - low / 2) if high > low else np.full(len(values), 0.5)
        return np.clip(np.round(share * most), 0, most).astype(np.int64)

    def _level(self, value: float) -> float:
        return float(np.log10(value)) if self._log else value
