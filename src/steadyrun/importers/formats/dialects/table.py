"""Tables that a program prints (fastai, spaCy, skorch): a line of names, then lines with as many numbers below it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.form import Dialect, Lines, pairs
from steadyrun.importers.model import Log, Row
from steadyrun.importers.numbers import ANY
from steadyrun.importers.told import Told

_GAP = re.compile(r"\s{2,}|\t|\s*\|\s*")
_HEADER = re.compile(
    r"^[ \t|]*(?:epoch|e|#|step|iter|iteration|steps)(?:[ ]{2,}|\t|[ ]*\|)[^\n:=]*\bloss\b[^\n:=]*$|"
    r"^[ \t|]*(?:epoch|step|iter|iteration)(?:[ ]{2,}|\t|[ ]*\|)[^\n:=]*_loss\b[^\n:=]*$",
    re.M | re.I,
)
_ROW = re.compile(rf"^[ \t|]*\d+(?:[ \t|]+(?:{ANY}|-|None|\d+:\d+(?::\d+)?))+[ \t|%+]*$", re.I)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _GAP.split(line.strip().strip("|").strip())]


def _rows(lines: Lines, told: Told, log: Log) -> Iterator[Row]:
    names: list[str] = []
    for number, line in lines:
        if _HEADER.match(line):
            names = ["step" if name == "#" else name for name in _cells(line)]
            parts = tuple(name for name in names if name.lower().startswith("loss "))
            if parts:  # spaCy: a loss per component
                log.sums["loss"] = parts
        elif names and _ROW.match(line):
            cells = _cells(line) if len(_cells(line)) == len(names) else line.replace("|", " ").split()
            if len(cells) == len(names):
                yield pairs(
                    [(name, cell) for name, cell in zip(names, cells, strict=True) if ":" not in cell], told, number
                )
            else:
                told.odd(f"rows that do not have {len(names)} cells", "left out", f"line {number:,}")


def _sure(text: str) -> bool:
    """Names alone are no table: rows have to follow."""
    found = _HEADER.search(text)
    after = text[found.end() :].splitlines()[1:8] if found else []
    return any(_ROW.match(line) for line in after)


DIALECT = Dialect("table", "printed table (fastai, spaCy)", _HEADER, _rows, sure=_sure)
