"""How a table of text is laid out: what separates its cells, where its names stand, where its rows begin."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.model import WIDEST, Look
from steadyrun.importers.numbers import MISSING, number
from steadyrun.importers.reading import binary, decoded, head

_ENDS = re.compile(r"\r\n|\n|\r")
_HEAD = 2**18


@dataclass(frozen=True)
class Layout:
    """Names of the columns, the mark between cells, and how many lines come before the rows."""

    names: list[str]
    mark: str
    above: int


def detect(look: Look) -> bool:
    """Whether a file is a table: names, then rows with as many cells, numbers among them."""
    if binary(look.head):
        return False
    lines = _ENDS.split(decoded(look.head))[:-1] if len(look.head) >= 2**15 else _ENDS.split(decoded(look.head))
    found = _found(lines)
    if found is None:
        return look.path.suffix.lower() in {".csv", ".tsv"} and _mark(_data(lines)) is not None
    rows = [line for line in lines[found.above :] if line.strip()][:20]
    return any(is_number(cell) for line in rows for cell in cells(line, found.mark))


def names_of(look: Look) -> list[str]:
    """The names of a table that was detected; none where it has none."""
    found = _found(_ENDS.split(decoded(look.head)))
    return found.names if found else []


def layout(path: Path) -> Layout:
    """The layout of a file, or a clear error."""
    start = head(path, _HEAD)
    if binary(start):
        at = next((place for place, byte in enumerate(start) if byte < 9), 0)
        raise LogError(f"{path}, byte {at:,}: it is binary, no table of text")
    lines = _ENDS.split(decoded(start))
    found = _found(lines)
    if found is None:
        if _mark(_data(lines)) is None:
            raise LogError(f"{path}, line 1: the first lines are no table (names, then rows with as many cells)")
        raise LogError(f"{path}, line 1: no names of columns; the first line has to name them, such as step,loss")
    if len(found.names) > WIDEST:
        raise LogError(f"{path}, line 1: {len(found.names):,} columns: this is no log of a training run")
    return found


def _data(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _found(lines: list[str]) -> Layout | None:
    """The first line is the header; where it is numbers already, the comment right above it may be."""
    mark = _mark(_data(lines))
    if mark is None:
        return None
    at = next(place for place, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    header = cells(lines[at], mark)
    if _named(header):
        return Layout(_unique(header), mark, at + 1)
    above = cells(lines[at - 1].strip().lstrip("#"), mark) if at else []
    return Layout(_unique(above), mark, at) if len(above) == len(header) and _named(above) else None


def _mark(lines: list[str]) -> str | None:
    """What separates the cells: what the header has most of, and most rows have as often."""
    best: tuple[int, str] | None = None
    for mark in (",", "\t", ";", "|") if len(lines) > 1 else ():
        width = len(cells(lines[0], mark))
        rows = [len(cells(line, mark)) for line in lines[1:50]]
        alike = sum(found == width for found in rows)
        if width > 1 and alike >= max(1, 0.5 * len(rows)) and (best is None or width > best[0]):
            best = (width, mark)
    return best[1] if best else None


def cells(line: str, mark: str) -> list[str]:
    """The cells of a line, without the quotes around them."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(mark)]
    parts = re.findall(rf'(?:^|{re.escape(mark)})\s*("(?:[^"]|"")*"|[^{re.escape(mark)}]*)', line)
    return [part.strip().strip('"').replace('""', '"') for part in parts]


def _named(found: list[str]) -> bool:
    """Whether these are names: no cell that has something in it is a number."""
    given = [cell for cell in found if cell]
    return bool(given) and not any(is_number(cell) or cell.lower() in MISSING for cell in given)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, NaN and infinity included, rather than a name with a digit in it."""
    try:
        return number(cell) is not None and not re.search(r"[a-zA-Z]{4}", cell)
    except ValueError:
        return True


def _unique(found: list[str]) -> list[str]:
    met: Counter[str] = Counter()
    names: list[str] = []
    for place, cell in enumerate(found):
        name = cell or f"column {place + 1}"
        met[name] += 1
        names.append(name if met[name] == 1 else f"{name} #{met[name]}")
    return names
