"""Tables whose heads say more than one line of names, as plain lines.

Names over two lines (`| Mini-batch |` above `| Accuracy |`) become one line. Below a head of data
(`Training |  Validation`), `loss | 0.4 | 0.5` is the line `Training loss: 0.4, Validation loss: 0.5`. A cell in
brackets, `[0.3, 0.1]`, holds the terms of a sum.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from steadyrun.importers.formats.dialects.dialect import Lines
from steadyrun.importers.number_text import ANY, MISSING
from steadyrun.importers.series_roles import HELD_OUT, TRAIN

_DATA = rf"(?:{'|'.join(sorted(TRAIN | HELD_OUT))})\b"
_DATA_HEAD = re.compile(
    rf"^(?P<front>[^|]{{0,160}}?)(?<!\w)(?:metrics?\s*+)?\|?\s*+(?P<data>{_DATA}(?:\s*+\|\s*+{_DATA})++)\s*+\|?\s*+$",
    re.I,
)
_ROW = re.compile(r"^(?P<front>[^|]*)\|(?P<cells>[^|]*(?:\|[^|]*)*)$")
_NAME = re.compile(r"(?:^|[^\w./@ -])(?P<name>[\w./@ -]*+)$")
_NAMES = re.compile(r"^\s*+\|(?=[^\n]*[A-Za-z])[^\d|]*(?:\|[^\d|]*)+\|\s*$")  # a framed row of words
_RULE = re.compile(r"^[\s|+=-]*$")
_ASIDE = re.compile(r"\([^()|]*\)")
_NUMBER = re.compile(ANY, re.I)
_COUNTS, _FIRST = ("step", "epoch", "iter"), frozenset("sSeEiI")
_HEAD_OF_TERMS = re.compile(r"^\s*+(?:\w++ )?\w++(?:\s{2,}[A-Za-z]\w*+(?: \w++){0,3}+){1,20}+\s*$")
_TERMS = re.compile(r"^\s*+\d++(?=\s+\[)(?:\s++(?:\[[^\[\]]*+\]|[^\s\[\]]++))++\s*$")
_CELLS = re.compile(r"\[[^\[\]]*+\]|[^\s\[\]]++")
_GAP = re.compile(r"\s{2,}")
_LONGEST, _LONGEST_TABLE = 400, 100


def plain_tables(lines: Lines) -> Lines:
    """The lines of a file, with tables as lines that can be read alone."""
    heads = _Heads()
    for number, line in lines:
        if "|" in line and len(line) <= _LONGEST:
            yield from heads.framed(number, line)
        else:
            yield from heads.released()
            heads.left -= 1
            yield number, heads.summed(line) if len(line) <= _LONGEST else line
    yield from heads.released()


@dataclass
class _Heads:
    """The heads of tables that were read last."""

    held: tuple[int, str] | None = None  # a line of names with which the next one may go on
    data: list[str] = field(default_factory=list)
    left: int = 0  # lines that may still be rows of a metric
    terms: list[str] = field(default_factory=list)  # names of columns whose cells may be in brackets

    def framed(self, number: int, line: str) -> Lines:
        """A line with bars in it."""
        end = line.rstrip()[-1:]
        if self.held is not None and (merged := _merged(self.held[1], line)):
            self.held = None
            yield number, merged
            return
        yield from self.released()
        if (end == "|" or end.isalpha()) and (head := _DATA_HEAD.match(line)):
            self.data, self.left = [word.strip() for word in head["data"].split("|")], _LONGEST_TABLE
        elif self.left > 0 and (row := _in_one(line, self.data)):
            yield number, row
        elif end == "|" and _NAMES.match(line):
            self.held = (number, line)
        else:
            self.left -= 1
            yield number, line

    def released(self) -> Lines:
        """The line that was held, if nothing goes on with it."""
        if self.held is not None:
            yield self.held
            self.held = None

    def summed(self, line: str) -> str:
        """A line without bars; terms in brackets become their sum."""
        if line[:1] in _FIRST and line[:5].lower().startswith(_COUNTS) and _HEAD_OF_TERMS.match(line):
            self.terms = _GAP.split(line.strip())
        elif self.terms and "[" in line and _TERMS.match(line):
            return _with_sums(line, self.terms)
        return line


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
    cells = [cell.strip() for cell in row["cells"].split("|")] if row else []
    if row is None or len(cells) != len(data):
        return ""
    front = row["front"].strip()
    name = _NAME.search(front)
    words = name["name"].split(" - ")[-1].strip() if name else ""
    if not words[:1].isalpha():
        return ""
    if not all(cell.lower() in MISSING or _NUMBER.fullmatch(cell) for cell in cells):
        return ""
    values = (f"{of} {words}: {cell}" for of, cell in zip(data, cells, strict=True) if cell.lower() not in MISSING)
    return f"{front.removesuffix(words)} {', '.join(values)}"


def _with_sums(line: str, names: list[str]) -> str:
    """A row with the sums of the terms in its brackets, each with its name."""
    cells = [_NUMBER.findall(cell) for cell in _CELLS.findall(line)]
    sums = ((name, sum(map(float, cell))) for name, cell in zip(names, cells, strict=False) if cell)
    return ", ".join(f"{name}: {value:.10g}" for name, value in sums)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
