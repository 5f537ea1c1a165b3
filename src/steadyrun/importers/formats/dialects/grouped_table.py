"""Tables with `|` between groups of columns, below a row of titles (`| VALID | TRAIN |`) or without one.

Each group has as many names as its rows have numbers, or one name. A title that names the data goes in front of them,
so that two groups may use the same names. Text beside the numbers of a cell (`0 hr 06 min`, `*`) is a time or a mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.formats.dialects.printed_names import count_word, data_of
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY
from steadyrun.importers.series_roles import HELD_OUT, TRAIN

_BAR = re.compile(r"[|│┃]")
_HEADER = re.compile(r"^(?=[^:=]*+$)(?!.*\d\.\d)[ \t|]*+(?:[A-Za-z#][\w/%@.-]*+[ \t]++){1,8}[|│┃][^|│┃]*[|│┃]", re.I)
_TITLES = re.compile(r"^[ \t]*+[|│┃][ \t=_.-]*+[A-Za-z][^\d|│┃]{0,60}[|│┃]")
_NUMBER = re.compile(rf"(?<![\w.]){ANY}(?![\w.])", re.I)
_WORDS = re.compile(r"[A-Za-z]+")
_FEWEST = 2  # rows below a header


@dataclass
class _Groups:
    """The names of the columns, cell by cell, and the titles above them."""

    titles: list[str] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)

    def take(self, line: str) -> bool:
        """Whether a line is a row of titles or of names."""
        if _TITLES.match(line):
            self.titles = [" ".join(_WORDS.findall(cell)).lower() for cell in _cells(line)]
        elif _HEADER.match(line):
            self.names = [cell.split() for cell in _cells(line)]
            self.titles = self.titles if len(self.titles) == len(self.names) else []
            self.names = [self._named(index, names) for index, names in enumerate(self.names)]
            self.titles = []
        else:
            return False
        return True

    def _named(self, index: int, names: list[str]) -> list[str]:
        """Names with the data that the title above them says."""
        title = self.titles[index] if self.titles else ""
        data = "train" if title in TRAIN else data_of(title) if title in HELD_OUT else ""
        return [f"{data}_{name}" if data else name for name in names]

    def fields(self, line: str) -> list[tuple[str, str]]:
        """Names and numbers of a row; nothing if the row has other groups than the names."""
        cells = _cells(line)
        if len(cells) != len(self.names):
            return []
        found: list[tuple[str, str]] = []
        for names, cell in zip(self.names, cells, strict=True):
            numbers = _NUMBER.findall(cell)
            if len(numbers) == len(names):
                found += zip(names, numbers, strict=True)
            elif len(numbers) == 1 and names:
                found.append((" ".join(names), numbers[0]))
        return found if _NUMBER.match(cells[0]) else []


def _cells(line: str) -> list[str]:
    cells = [cell.strip() for cell in _BAR.split(line.rstrip())]
    return cells[:-1] if len(cells) > 1 and not cells[-1] else cells


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    groups = _Groups()
    for number, line in lines:
        if groups.take(line) or not groups.names:
            continue
        row = pairs(groups.fields(line), anomalies, number)
        if row:
            yield _placed(row)


def _placed(row: dict[str, float]) -> dict[str, float]:
    """A row whose counts are called `step` and `epoch`."""
    words = {name: count_word(name) for name in row}
    step = next((name for name, word in words.items() if word not in (None, "epoch")), None)
    return {"step" if name == step else words[name] or name: value for name, value in row.items()}


def _sure(lines: list[str]) -> bool:
    groups, rows = _Groups(), 0
    for line in lines:
        rows += not groups.take(line) and len(groups.fields(line)) > len(groups.names)
        if rows >= _FEWEST:
            return True
    return False


DIALECT = Dialect("groups", "table with | between groups of columns", _HEADER, _rows, sure=_sure)
