"""Boxes with a name and a number in each line, as Stable-Baselines, Baselines and Spinning Up print them.

`| rollout/           |      |`, then `|    ep_rew_mean     | 20.1 |`: names below a section get its name in front.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_RULE = re.compile(r"^\s*+[-+=─━┏┗┌└╭╰|]{5,}+[-+=─━┓┛┐┘╮╯|]*+\s*$")
_LINE = re.compile(rf"^\s*+[|│┃](\s*+)([A-Za-z][^|│┃]{{0,100}})[|│┃]\s*+({ANY})?\s*+[|│┃]\s*$", re.I)
_FIELD = re.compile(rf"^\s*+[|│┃]\s*+[A-Za-z][^|│┃]{{0,100}}[|│┃]\s*+{ANY}\s*+[|│┃]\s*$", re.I)
_STEPS = ("total_timesteps", "totalenvinteracts", "timesteps", "n_updates", "iterations", "steps", "epoch", "episodes")
"""What counts the steps of a box, the best first."""


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


DIALECT = Dialect("boxes", "boxes of names and numbers (Stable-Baselines)", _FIELD, _rows, sure=_sure)
