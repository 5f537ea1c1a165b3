"""Numbers as frameworks print them, in lines or over several lines, each made a plain number behind its name.

`loss: Variable containing:`, ` 0.6931`, `[torch.FloatTensor of size 1]` is the line `loss: 0.6931`. A line that is one
measured number and nothing else is a value of what the file is named after.
"""

from __future__ import annotations

import re
from pathlib import Path

from steadyrun.importers.formats.dialects.dialect import Lines
from steadyrun.importers.formats.dialects.printed_names import measured
from steadyrun.importers.number_text import ANY, SPECIAL, unwrapped
from steadyrun.importers.other_languages import in_english
from steadyrun.importers.series_roles import name_of_file

_OPEN = re.compile(  # what stands between a name and a number that is printed in the next line
    r"(?P<name>[\w)\]%][ \t]*+(?:[:=]|(?<=loss)|(?<=loss[ \t])))[ \t]*+"
    r"(?:(?:Variable|Parameter) containing:|Tensor\(shape=[^\n]{0,200},)?\s*+$",
    re.I,
)
_OPEN_ENDS = (":", "=", ",", " ", "loss", "Loss")  # asked first, for it is quick
_ALONE = re.compile(rf"^[\s\[(]*+(?P<number>{ANY})[\s\])]*+,?\s*+$", re.I)
_COUNTED = re.compile(  # `epoch12 0.25`: a count with its word, and one number
    rf"^\s*+(?P<count>(?:global[ _])?(?:epoch|ep|step|iter|iters|iteration|episode|update|batch)s?)[ _:=#-]{{0,3}}"
    rf"(?P<at>\d++(?: ?/ ?\d++)?)(?:[ \t,;:|-]{{1,8}})(?P<number>{ANY})\s*+$",
    re.I,
)
_MEASURED = re.compile(r"[.naif]", re.I)  # a fraction or no finite number; a whole number may count anything
_CELL = rf"(?:{SPECIAL}|[-+]?+[\d.]++(?:e[-+]?+\d++)?+)"
_NUMBERS_ALONE = re.compile(rf"^{_CELL}(?:[\s,;]++{_CELL})*+,?", re.I)
_LONG = 60  # characters of numbers that are a curve; fewer are one row
_END = 240  # characters at the end of a line in which its name stands


def _curve(lines: Lines, name: str) -> Lines:
    """The lines of a file; a single line of numbers alone is a list of what the file is named after."""
    first = next(((number, line) for number, line in lines if line.strip()), None)
    if first is None:
        return
    numbers = first[1].strip().strip("[()]")
    if len(numbers) < _LONG or not _NUMBERS_ALONE.fullmatch(numbers):
        yield first
        yield from lines
        return
    second = next(((number, line) for number, line in lines if line.strip()), None)
    yield first if second else (first[0], f"{name}: [{numbers}]")
    if second:
        yield second
        yield from lines


def plain_values(lines: Lines, path: Path) -> Lines:
    """The lines of a file, each value as a plain number in the line of its name."""
    about = name_of_file(path.stem)
    named = about if measured(about) else ""
    held: tuple[int, str] | None = None
    for number, printed in _curve(lines, named) if named else lines:
        line = unwrapped(in_english(printed))
        alone = _ALONE.match(line)
        if held is not None:
            yield (held[0], f"{held[1]} {alone['number']}") if alone else held
            if alone:
                held = None
                continue
            held = None
        counted = _COUNTED.match(line) if named and not alone else None
        if (
            alone and named and _MEASURED.search(alone["number"]) and "," not in alone["number"]
        ):  # `15,970.5`: two cells
            yield number, f"{named}: {alone['number']}"
        elif counted and _MEASURED.search(counted["number"]):
            yield number, f"{counted['count']} {counted['at']} {named}: {counted['number']}"
        elif not alone and line.endswith(_OPEN_ENDS) and (match := _OPEN.search(line, max(0, len(line) - _END))):
            held = (number, line[: match.end("name")])
        else:
            yield number, line
    if held is not None:
        yield held
