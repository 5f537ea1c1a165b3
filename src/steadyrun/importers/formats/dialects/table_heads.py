"""Tables whose heads say more than one line of names, as plain lines.

Names over two lines (`| Mini-batch |` above `| Accuracy |`) become one line. Below a head of data
(`Training |  Validation`), `loss | 0.4 | 0.5` is the line `Training loss: 0.4, Validation loss: 0.5`. A cell in
brackets, `[0.3, 0.1]`, holds the terms of a sum.
"""

from __future__ import annotations

import re

from steadyrun.importers.formats.dialects.dialect import Lines
from steadyrun.importers.number_text import ANY, MISSING
from steadyrun.importers.series_roles import HELD_OUT, TRAIN

_DATA = rf"(?:{'|'.join(sorted(TRAIN | HELD_OUT))})\b"
_DATA_HEAD = re.compile(
    rf"^(?P<front>[^|]{{0,160}}?)(?<!\w)(?:metrics?\s*+)?\|?\s*+(?P<data>{_DATA}(?:\s*+\|\s*+{_DATA})++)\s*+\|?\s*+$",
    re.I,
)
_ROW = re.compile(r"^(?P<front>[^|]*)\|(?P<cells>[^|]*(?:\|[^|]*)*)$")
_NAME = re.compile(r"[A-Za-z][\w./@ -]*$")
_NAMES = re.compile(r"^\s*+\|(?=[^\n]*[A-Za-z])[^\d|]*(?:\|[^\d|]*)+\|\s*$")  # a framed row of words
_RULE = re.compile(r"^[\s|+=-]*$")
_ASIDE = re.compile(r"\([^()|]*\)")
_NUMBER = re.compile(ANY, re.I)
_COUNTS = ("step", "epoch", "iter")
_HEAD_OF_TERMS = re.compile(r"^\s*+(?:\w++ )?\w++(?:\s{2,}[A-Za-z]\w*+(?: \w++){0,3}+){1,20}+\s*$")
_TERMS = re.compile(r"^\s*+\d++(?=\s+\[)(?:\s++(?:\[[^\[\]]*+\]|[^\s\[\]]++))++\s*$")
_CELLS = re.compile(r"\[[^\[\]]*+\]|[^\s\[\]]++")
_GAP = re.compile(r"\s{2,}")
_LONGEST, _LONGEST_TABLE = 400, 100


def plain_tables(lines: Lines) -> Lines:
    """The lines of a file, with tables as lines that can be read alone."""
    held: tuple[int, str] | None = None
    data: list[str] = []
    left = 0
    terms: list[str] = []  # names of columns whose cells may be in brackets
    for number, line in lines:
        if line.lstrip()[:5].lower().startswith(_COUNTS) and len(line) <= _LONGEST and _HEAD_OF_TERMS.match(line):
            terms = _GAP.split(line.strip())
        elif terms and "[" in line and len(line) <= _LONGEST and _TERMS.match(line):
            line = _with_sums(line, terms)
        if "|" not in line or len(line) > _LONGEST:
            if held is not None:
                yield held
                held = None
            left -= 1
            yield number, line
            continue
        if held is not None:
            merged = _merged(held[1], line)
            if merged:
                held = None
                yield number, merged
                continue
            yield held
            held = None
        if head := _DATA_HEAD.match(line):
            data, left = [word.strip() for word in head["data"].split("|")], _LONGEST_TABLE
            continue
        if left > 0 and (row := _in_one(line, data)):
            yield number, row
            continue
        left -= 1
        if _NAMES.match(line):
            held = (number, line)
        else:
            yield number, line
    if held is not None:
        yield held


def _merged(above: str, below: str) -> str:
    """Two lines of names as one; nothing if the second does not go on with the first."""
    if not _NAMES.match(below):
        return ""
    pairs = list(zip(_cells(above), _cells(below), strict=False))
    if len(_cells(above)) != len(_cells(below)) or all(one and other for one, other in pairs):
        return ""
    joined = (_ASIDE.sub("", f"{one} {other}").strip() for one, other in pairs)
    return f"| {' | '.join(joined)} |"


def _in_one(line: str, data: list[str]) -> str:
    """A row of a metric, with the names of the data; nothing for another line."""
    row = _ROW.match(line.strip().strip("|"))
    name = _NAME.search(row["front"].strip()) if row else None
    cells = [cell.strip() for cell in row["cells"].split("|")] if row else []
    if row is None or name is None or len(cells) != len(data):
        return ""
    if not all(cell.lower() in MISSING or _NUMBER.fullmatch(cell) for cell in cells):
        return ""
    front = row["front"].strip()[: name.start()]
    words = name[0].split(" - ")[-1].strip()
    values = (f"{of} {words}: {cell}" for of, cell in zip(data, cells, strict=True) if cell.lower() not in MISSING)
    return f"{front} {', '.join(values)}"


def _with_sums(line: str, names: list[str]) -> str:
    """A row with the sums of the terms in its brackets, each with its name."""
    cells = [_NUMBER.findall(cell) for cell in _CELLS.findall(line)]
    sums = ((name, sum(map(float, cell))) for name, cell in zip(names, cells, strict=False) if cell)
    return ", ".join(f"{name}: {value:.10g}" for name, value in sums)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
