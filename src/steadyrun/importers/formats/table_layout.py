"""The layout of a table of text: the names of its columns, the mark between its cells, and the lines above it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import binary, decoded, head
from steadyrun.importers.likely_roles import role_of_file
from steadyrun.importers.log_rows import WIDEST, FileSample
from steadyrun.importers.number_text import MISSING, TooLargeError, number
from steadyrun.importers.series_roles import name_of_file

ENDS = re.compile(r"\r\n|\n|\r")
HEAD = 2**18
_TABLES = {".csv", ".tsv"}
_SAYS_NOTHING = re.compile(r"(?:[a-z]|col|column|var|field|f|unnamed:?)?[ _]?\d+", re.I)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
SAMPLE, _FEWEST = 50, 4  # rows of numbers that are looked at before they get names; the last may be cut off
_MOST_ABOVE = 20  # lines above a table that are not part of it: settings, a title
_JOINED = re.compile(r"^\d{1,12}_[-+]?(?:\d+\.\d*|\.\d+|nan|inf)(?:e[-+]?\d+)?", re.I)  # `12_0.5`: a count and a value
_WHOLE = "\x1f"  # between the cells of a table of one column, whose numbers may have commas in them


@dataclass(frozen=True)
class Layout:
    """Names of the columns, the mark between cells, and how many lines come before the rows."""

    names: list[str]
    mark: str
    above: int
    named: bool = True  # else the columns have names of ours: it is a table of numbers alone


def detect(sample: FileSample) -> bool:
    """Whether a file is a table: names, then rows with as many cells, numbers among them."""
    if binary(sample.head):
        return False
    lines = ENDS.split(decoded(sample.head))[:-1] if len(sample.head) >= 2**15 else ENDS.split(decoded(sample.head))
    table = _layout_of(lines, sample.path)
    if table is None:
        return sample.path.suffix.lower() in _TABLES and _mark(_data(lines)) is not None
    rows = [line for line in lines[table.above :] if line.strip()][:20]
    return any(is_number(cell) for line in rows for cell in cells(line, table.mark))


def names_of(sample: FileSample) -> list[str]:
    """The names of a table that was detected, if it has any."""
    table = _layout_of(ENDS.split(decoded(sample.head)), sample.path)
    return table.names if table else []


def layout(path: Path) -> Layout:
    """The layout of a file, or a clear error."""
    start = head(path, HEAD)
    if binary(start):
        at = next((index for index, byte in enumerate(start) if byte < 9), 0)
        raise LogError(f"{path}, byte {at:,}: the file is binary. Export it as CSV, or name its format with --format")
    lines = ENDS.split(decoded(start))
    table = _layout_of(lines, path)
    if table is None:
        if _mark(_data(lines)) is None:
            missing = "the first lines do not form a table: names, then rows with as many cells"
            raise LogError(f"{path}, line 1: {missing}. Name the format with --format")
        raise LogError(f"{path}, line 1: the columns have no names. Put them in the first line, such as step,loss")
    if len(table.names) > WIDEST:
        raise LogError(
            f"{path}, line 1: {len(table.names):,} columns, so it does not look like a training log. Keep the metrics "
            "alone."
        )
    return table


def _data(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _layout_of(lines: list[str], path: Path) -> Layout | None:
    """The first line is the header; if it is numbers already, the comment right above it may be."""
    data = _data(lines)
    mark = _mark(data)
    alone = _one_column(data, path) if mark is None or _is_wrapped(data[-1].strip()) else None
    if alone is not None or mark is None:
        at = lines.index(data[0]) if data else 0
        return (
            _below_other_lines(lines) if alone is None else Layout(alone.names, _WHOLE, at + alone.above, alone.named)
        )
    at = next(index for index, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    header = cells(lines[at], mark)
    if has_names(header):
        return _spoken(Layout(unique(header), mark, at + 1), data, path)
    above = cells(lines[at - 1].strip().lstrip("#"), mark) if at else []
    if len(above) == len(header) and has_names(above):
        return Layout(unique(above), mark, at)
    return _nameless(data, mark, at, path) or _below_other_lines(lines)


def _spoken(table: Layout | None, data: list[str], path: Path) -> Layout | None:
    """A layout whose names say something; if none does (`x1`, `x2`), that of a table without names."""
    if table is None or not all(_SAYS_NOTHING.fullmatch(name) for name in table.names):
        return table
    return _nameless(data[1:], table.mark, table.above, path) or table


def _below_other_lines(lines: list[str]) -> Layout | None:
    """The layout of a table below a few lines of something else: a line of names, then only rows of numbers."""
    filled = [at for at, line in enumerate(lines) if line.strip()][: _MOST_ABOVE + SAMPLE]
    for nth, at in enumerate(filled[1 : _MOST_ABOVE + 1], start=1):
        below = [lines[row] for row in filled[nth + 1 : nth + SAMPLE]]
        mark = _mark([lines[at], *below])
        header = cells(lines[at], mark) if mark else []
        rows = [cells(line, mark) for line in below[:-1]] if mark else []
        if len(rows) < _FEWEST or not (all(header) and has_names(header)) or len(set(header)) < len(header):
            continue
        if all(len(row) == len(header) and 2 * sum(map(is_number, row)) > len(row) for row in rows):
            return Layout(unique(header), mark or ",", at + 1)
    return None


def _nameless(data: list[str], mark: str, above: int, path: Path) -> Layout | None:
    """The layout of numbers alone: what counts is the step, and a file named after a series begins with that."""
    named = role_of_file(path) is not None
    rows = [[_plain_number(cell) for cell in cells(line, mark)] for line in data[:SAMPLE]]
    if len(rows) < _FEWEST or not (named or path.suffix.lower() in _TABLES):
        return None
    if any(value is None or len(row) != len(rows[0]) for row in rows[:-1] for value in row):
        return None
    names = [f"column_{index + 1}" for index in range(len(rows[0]))]
    first = [row[0] or 0.0 for row in rows[:-1]]
    counts = all(value == value // 1 for value in first) and all(b > a for a, b in pairwise(first))
    if counts and len(names) > 1:
        names[0] = "step"
    if named and not (counts and len(names) == 1):
        names[int(counts)] = name_of_file(path.stem)
    return Layout(names, mark, above, named=False)


def _one_column(data: list[str], path: Path) -> Layout | None:
    """The layout of a single column, below its name or without one; `above` counts from the first line of data."""
    below = [_plain_number(line) for line in data[1:SAMPLE]]
    if len(below) < _FEWEST - 1 or None in below[:-1]:
        return None
    if _plain_number(data[0]) is not None:
        return _nameless(data, _WHOLE, 0, path)
    name = data[0].strip()
    if not has_names([name]) or not (path.suffix.lower() in _TABLES or role_of_file(path)):
        return None
    return _spoken(Layout([name], _WHOLE, 1), data, path)


def _plain_number(cell: str) -> float | None:
    try:
        return number(cell) if is_number(cell) else None
    except TooLargeError:
        return None


def _mark(lines: list[str]) -> str | None:
    """What separates the cells: what the header has most of, and most rows have as often."""
    best: tuple[int, str] | None = None
    for mark in (",", "\t", ";", "|") if len(lines) > 1 else ():
        width = len(cells(lines[0], mark))
        again = lines[0].partition(mark)[0] + mark  # another header may have other columns
        end = next((at for at, line in enumerate(lines[1:50], 1) if line.startswith(again)), 50)
        widths = [len(cells(line, mark)) for line in lines[1:end]]
        alike = sum(row_width == width for row_width in widths)
        if width > 1 and alike >= max(1, 0.5 * len(widths)) and (best is None or width > best[0]):
            best = (width, mark)
    if best is None and len(lines) >= _FEWEST and all(_JOINED.fullmatch(line.strip()) for line in lines[: SAMPLE - 1]):
        return "_"
    return best[1] if best else None


def cells(line: str, mark: str) -> list[str]:
    """The cells of a line, without the quotes around them."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(mark)]
    parts = re.findall(rf'(?:^|{re.escape(mark)})\s*("(?:[^"]|"")*"|[^{re.escape(mark)}]*)', line)
    return [part.strip().strip('"').replace('""', '"') for part in parts]


def has_names(header: list[str]) -> bool:
    """Whether these are names: no cell that has something in it is a number or a date and a time, as loggers print."""
    filled = [cell for cell in header if cell]
    return bool(filled) and not any(
        is_number(cell) or cell.lower() in MISSING or _MOMENT.search(cell) for cell in filled
    )


def is_number(cell: str) -> bool:
    """Whether a cell is a number, NaN and infinity included, rather than a name with a digit in it."""
    try:
        long_word = re.search(r"[a-zA-Z]{4}", cell.partition("(")[0])
        return number(cell) is not None and (_is_wrapped(cell) or not long_word)
    except ValueError:
        return True


def _is_wrapped(cell: str) -> bool:
    """Whether a number begins with a word: a printed tensor, or NaN."""
    return cell[:1].isalpha() or cell[:1] == "<"


def unique(header: list[str]) -> list[str]:
    """Names of which none comes twice, nor is empty."""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for index, cell in enumerate(header):
        name = cell or f"column {index + 1}"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} #{counts[name]}")
    return names
