"""Rows of numbers alone, below a line of names (`Episode   Prey Reward   Total Reward`) or without any names.

A table is taken for what its rows show: as many numbers as there are names above them, or a first number that counts.
A row may end in a mark (`*`, `<- best`). Without names the first column is the step, the others are numbered.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.formats.dialects.printed_names import count_word, measured
from steadyrun.importers.formats.dialects.printed_table import aligned
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import SPECIAL

_NUMBER = rf"(?:{SPECIAL}|[-+]?+(?:\d++\.?+\d*+|\.\d++)(?:e[-+]?+\d++)?+)"  # a comma ends it: `0,447,509`
_CELL = rf"(?:\d++:\d++(?::\d++(?:\.\d++)?)?|\d++/\d++|{_NUMBER}(?:[GMKs%]|ms)?|--?|None)(?![\w.])"
_MARK = r"(?:(?<=[ \t|])(?:[^\w\s.,;:=]|best\b|new\b|saved?\b)[^\d\n]{0,30})?"
_LOGGER = r"(?:[^\n]{0,120}?\b(?:INFO|DEBUG)\b[\]:| -]{1,4})?"
_ROW = re.compile(
    rf"^{_LOGGER}[ \t|\[(]*+(?P<cells>{_CELL}(?:(?:[ \t]*+[,;|][ \t]*+|[ \t]++){_CELL})++)[ \t|,;\])]*+{_MARK}$", re.I
)
_PREFIX = re.compile(f"^{_LOGGER}")
_SEPARATOR = re.compile(r"[\s,;|]+")
_NAMES = re.compile(r"^(?=[^:={}\"'<>\\]*+$)[\W\d_]*+\w")
_COUNTERS = frozenset({"#", "gen", "generation", "round", "game", "t", "n", "no", "no.", "idx", "index", "i"})
"""What counts if it stands in front of a table."""
_ABOVE = 20  # lines above a row in which its names stand: rules and warnings may come between
_FEWEST, _FEWEST_NAMELESS = 3, 4  # rows of a table below names, and without any
_MOST = 0.9  # of the lines that have something in them: rows without names stand in no other text
_LONGEST_HEADER = 1_000
_VALUE = re.compile(r"^\s*+[-+]?+\d*+\.\d++(?:e[-+]?+\d++)?+\s*$", re.I)
_FEWEST_VALUES = 20


class _Table:
    """The names of the rows, as the lines above them give them."""

    def __init__(self) -> None:
        self.recent: deque[str] = deque(maxlen=_ABOVE)
        self.names: list[str] = []

    def cells(self, line: str) -> list[str] | None:
        """The cells of a row; None for another line."""
        match = _ROW.match(line)
        if match is None:
            header = _PREFIX.sub("", line, count=1) if len(line) <= _LONGEST_HEADER else ""
            if _NAMES.match(header):
                self.recent.append(header)
            return None
        cells = _SEPARATOR.split(match["cells"])
        if self.recent:
            self.names = _placed(self._above(cells)) or self.names
            self.recent.clear()
        return cells

    def _above(self, cells: list[str]) -> list[str]:
        found = (
            aligned(header.replace(",", " ").replace(";", " "), " ".join(cells))[0] for header in reversed(self.recent)
        )
        return next((names for names in found if names and not any(_ROW.match(f"0 {name}") for name in names)), [])


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    table = _Table()
    for number, line in lines:
        cells = table.cells(line)
        if cells is None:
            continue
        if not table.names:
            table.names = _numbered(cells)
            listed = ", ".join(table.names)
            anomalies.note(
                "no names of columns",
                f"they are called {listed}; --map ROLE=NAME names one, such as --map loss=column_2",
            )
        names = table.names
        if len(names) != len(cells):
            anomalies.note("rows that do not have as many cells as there are names", "left out", f"line {number:,}")
            continue
        fields = zip(names, cells, strict=True)
        yield pairs([(name, cell.partition("/")[0]) for name, cell in fields if ":" not in cell], anomalies, number)


def _numbered(cells: list[str]) -> list[str]:
    return ["step", *(f"column_{index}" for index in range(2, len(cells) + 1))]


def _placed(names: list[str]) -> list[str]:
    """Names of a table; what counts steps or epochs is called so."""
    counts = [count_word(name) for name in names]
    if names and not any(counts) and names[0].lower() in _COUNTERS:
        counts[0] = "step"
    word = next((index for index, count in enumerate(counts) if count not in (None, "epoch")), None)
    epoch = next((index for index, count in enumerate(counts) if count == "epoch"), None)
    return ["step" if index == word else "epoch" if index == epoch else name for index, name in enumerate(names)]


def _sure(lines: list[str]) -> bool:
    """Rows have to follow names, with as many cells; or be all that there is, and count."""
    table, filled, widths = _Table(), 0, Counter[int]()
    first: list[float] = []
    named = 0
    for line in lines:
        filled += bool(line.strip())
        cells = table.cells(line)
        if cells is not None:
            widths[len(cells)] += 1
            named += len(table.names) == len(cells) and _about_training(table.names)
            first.append(float(cells[0]) if cells[0].isdecimal() else float("nan"))
    if named >= _FEWEST:
        return True
    alike = max(widths.values(), default=0)
    return alike >= max(_FEWEST_NAMELESS, _MOST * filled) and _counts(first)


def _about_training(names: list[str]) -> bool:
    return any(name in ("step", "epoch") or measured(name) for name in names)


def _counts(first: list[float]) -> bool:
    """Whether these are whole numbers that rise, or begin again."""
    back = sum(not b >= a for a, b in pairwise(first))
    return all(value == value // 1 for value in first) and back <= len(first) // _FEWEST_NAMELESS


def _values(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    anomalies.note("a number in each line, without a name", "it is called value; --map ROLE=value says what it is")
    for number, line in lines:
        if _VALUE.match(line):
            yield pairs([("value", line.strip())], anomalies, number)


def _only_values(lines: list[str]) -> bool:
    """Whether nearly all lines are a number with decimals: a list of whole numbers may be anything."""
    values = sum(_VALUE.match(line) is not None for line in lines)
    return values >= max(_FEWEST_VALUES, _MOST * sum(bool(line.strip()) for line in lines))


VALUES = Dialect(
    "values", "a number in each line, without a name", _VALUE, _values, sure=_only_values, last_resort=True
)

DIALECT = Dialect(
    "numbers", "rows of numbers below a line of names, or without names", _ROW, _rows, sure=_sure, last_resort=True
)
