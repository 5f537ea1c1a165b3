"""What a dialect is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import TooLargeError, number

Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class Dialect:
    """`pattern` finds an entry in a line; `rows` reads all lines, and adds to the log what it learns on the way.

    A pattern is only ever given one line, and has to take time in proportion to it: what repeats is possessive (`*+`),
    bounded, or followed by what it cannot match itself, and no search begins anew within what was searched through.
    """

    name: str
    title: str
    pattern: re.Pattern[str]
    rows: Callable[[Lines, Anomalies, Log], Iterator[Row]]
    kind: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    sure: Callable[[list[str]], bool] = lambda _lines: True  # asked of lines in which the pattern was found
    last_resort: bool = False
    rowless: bool = False  # it only shows how a program ended


def read(text: str, anomalies: Anomalies, where: str) -> float | None:
    """A number of a line."""
    try:
        return number(text)
    except TooLargeError as problem:
        anomalies.note("numbers larger than any float", "left out", f"{where}: {problem}")
        return None


def pairs(matches: list[tuple[str, str]], anomalies: Anomalies, line: int) -> dict[str, float]:
    """Names and numbers out of matches of (name, text)."""
    row: dict[str, float] = {}
    for name, text in matches:
        value = read(text, anomalies, f"line {line:,}")
        if value is not None:
            row[" ".join(name.split())] = value
    return row
