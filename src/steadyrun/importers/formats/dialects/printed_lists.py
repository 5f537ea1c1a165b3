"""Lines with a name and all the numbers of a curve: `train_loss: [0.71, 0.69, 0.66]`, `BRNN:[0.71, 0.69]`.

Lines with different names are the series of one run. A name that comes again begins another run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, read
from steadyrun.importers.log_rows import LONGEST_NAME, WIDEST, Anomalies, Log, Row
from steadyrun.importers.number_text import SPECIAL
from steadyrun.importers.series_roles import RUN_COUNT

_FEWEST = 3  # numbers: a pair is a range or a size
_MOST = 0.5  # of the lines that have something in them: fewer lists stand in a log of another kind
_STEP = "point"
_NUMBER = rf"(?:{SPECIAL}|[-+]?+(?:\d++\.?+\d*+|\.\d++)(?:e[-+]?+\d++)?+)"  # a comma ends it: `[100,200,300]`
_LINE = re.compile(
    rf"^\s*+[\"']?(?P<name>[A-Za-z_][^\[\]:={{}}\"']{{0,{LONGEST_NAME - 1}}}+)[\"']?\s*+[:=]\s*+(?:array\()?\["
    rf"(?P<numbers>(?:\s*+{_NUMBER}(?:\s*+[,;]|\s++|(?=\]|$))){{{_FEWEST},}}+)(?P<end>\])?",
    re.I,
)
_NUMBERS = re.compile(_NUMBER, re.I)


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    log.roles["step"] = _STEP
    run: dict[str, list[float | None]] = {}
    runs = 0
    for number, line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        name = " ".join(match["name"].split())
        if name in run or len(run) >= WIDEST:
            yield from _run(run, runs)
            run, runs = {}, runs + 1
        where = f"line {number:,}"
        run[name] = [read(text, anomalies, where) for text in _NUMBERS.findall(match["numbers"])]
        if match["end"] is None:
            run[name].pop()
            anomalies.note("lists of numbers without an end", "read up to their last whole number", where)
    yield from _run(run, runs)


def _run(lists: Mapping[str, list[float | None]], number: int) -> Iterator[Row]:
    """The points of one run: each has the values that its series have at that index."""
    for index in range(max(map(len, lists.values()), default=0)):
        there = {name: values[index] for name, values in lists.items() if index < len(values)}
        row = {name: value for name, value in there.items() if value is not None}
        yield {RUN_COUNT: float(number), _STEP: float(index), **row}


def _sure(lines: list[str]) -> bool:
    filled = [line for line in lines if line.strip()]
    return sum(_LINE.match(line) is not None for line in filled) >= _MOST * len(filled)


DIALECT = Dialect("lists", "text with a list of numbers per series", _LINE, _rows, sure=_sure)
