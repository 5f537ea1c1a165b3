"""Tables that a program prints (fastai, spaCy, skorch): a line of names, then lines with as many numbers below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_GAP = re.compile(r"\s{2,}|\t|\s*\|\s*")
_HEADER = re.compile(
    r"^(?=[^:=]*+$)(?>[ \t|#]*+(?:epochs?|e|steps?|iter|iteration)[ \t|]|[ \t|#]*#[ \t|]).*?loss", re.I
)
_ROW = re.compile(rf"^[ \t|]*+\d++(?:[ \t|]++(?:\d++:\d++(?::\d++)?|{ANY}|-|None))++[ \t|%+]*+$", re.I)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _GAP.split(line.strip().strip("|").strip())]


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    header = ""
    for number, line in lines:
        if _HEADER.match(line):
            header = line
        elif header and _ROW.match(line):
            names, cells = _aligned(header, line)
            if not names:
                anomalies.note("rows that do not have as many cells as there are names", "left out", f"line {number:,}")
                continue
            fields = [(name, cell) for name, cell in zip(names, cells, strict=True) if ":" not in cell]
            yield pairs(fields, anomalies, number)


def _aligned(header: str, line: str) -> tuple[list[str], list[str]]:
    """Names and cells, as many of each: names may have single spaces in them, numbers have none."""
    cells = line.replace("|", " ").split()
    for names in (_cells(header), header.replace("|", " ").strip(" #").split()):
        if len(names) == len(cells):
            return ["step" if name == "#" else name for name in names], cells
    return [], []


def _sure(lines: list[str]) -> bool:
    """Names alone are no table: rows have to follow."""
    first = next((index for index, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    return any(_ROW.match(line) for line in lines[first + 1 : first + 8])


DIALECT = Dialect("table", "printed table (fastai, spaCy)", _HEADER, _rows, sure=_sure)
