"""Boxes with a name and a number in each line, as Stable-Baselines, Baselines and Spinning Up print them.

`| rollout/           |      |`, then `|    ep_rew_mean     | 20.1 |`: names below a section get its name in front.
Without a frame, lines of a name and a number between two rules are such a box as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_RULE = re.compile(r"^(?=.{0,200}?[-=─━═]{2})[-=+|\s\u2500-\u257f]{5,}+$")
_LINE = re.compile(rf"^\s*+[|│┃](\s*+)([A-Za-z%][^|│┃]{{0,100}})[|│┃]\s*+({ANY})?\s*+[|│┃]\s*$", re.I)
_FIELD = re.compile(rf"^\s*+[|│┃]\s*+[A-Za-z%][^|│┃]{{0,100}}[|│┃]\s*+{ANY}\s*+[|│┃]\s*$", re.I)
_BARE = re.compile(
    rf"^\s*+([A-Za-z%][^\s|│┃:=]*+(?: [^\s|│┃:=]++){{0,6}}+)(?:\s*+[|│┃]\s*+|\s{{2,}}+)({ANY})%?\s*$", re.I
)
_STEPS = (
    "total_timesteps",
    "totalenvinteracts",
    "timesteps",
    "timestep",
    "timestepssofar",
    "n_updates",
    "iterations",
    "steps",
    "epoch",
    "episodes",
)
"""What counts the steps of a box, the best first."""
_FEWEST = 2  # lines of a box without a frame, and boxes of a log


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    box: dict[str, float] = {}
    section, indent = "", 0
    for number, line in lines:
        if match := _LINE.match(line):
            name = match[2].strip()
            if match[3] is None:
                section, indent = name.rstrip("/"), len(match[1])
                continue
            inside = section and len(match[1]) > indent
            box.update(pairs([(f"{section}/{name}" if inside else name, match[3])], anomalies, number))
        elif box and _RULE.match(line):
            yield _counted(box, log)
            box, section = {}, ""
    if box:
        anomalies.note("a last box without an end", "kept as it is")
        yield _counted(box, log)


def _bare_boxes(lines: Lines) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """The fields of each box without a frame: nothing else stands between its two rules."""
    fields: list[tuple[str, str]] | None = None
    for number, line in lines:
        if _RULE.match(line):
            if fields is not None and len(fields) >= _FEWEST:
                yield number, fields
            fields = []
        elif fields is not None and (match := _BARE.match(line)):
            fields.append((match[1], match[2]))
        elif line.strip():
            fields = None


def _bare_rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    for number, fields in _bare_boxes(lines):
        yield _counted(pairs(fields, anomalies, number), log)


def _counted(box: dict[str, float], log: Log) -> Row:
    """A box whose count of steps is known to the log."""
    if "step" not in log.roles:
        counts = {name.lower().rpartition("/")[2]: name for name in box}
        best = next((counts[name] for name in _STEPS if name in counts), None)
        log.roles.update({} if best is None else {"step": best})
    return box


def _sure(lines: list[str]) -> bool:
    """At least two boxes: the same names again."""
    names = Counter(match[2].strip() for line in lines if (match := _LINE.match(line)) and match[3] is not None)
    return sum(count > 1 for count in names.values()) > 1


def _bare_sure(lines: list[str]) -> bool:
    names = Counter(name for _, fields in _bare_boxes(enumerate(lines)) for name, _ in fields)
    return sum(count >= _FEWEST for count in names.values()) > 1


DIALECT = Dialect("boxes", "boxes of names and numbers (Stable-Baselines)", _FIELD, _rows, sure=_sure)
BARE = Dialect(
    "bare-boxes", "names and numbers between rules (rlkit)", _BARE, _bare_rows, sure=_bare_sure, last_resort=True
)
