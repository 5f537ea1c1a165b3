"""llm.c: what it prints, and its `main.log`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_STEP = re.compile(
    rf"^\s*step\s+(\d{{1,15}})(?:/(\d{{1,15}})\s*\||:(?=.*\(took))\s*(?:train )?loss\s+({ANY})(.*)", re.I
)
_REST = re.compile(rf"\|\s*(norm|lr)\s+({ANY})", re.I)
_VAL = re.compile(rf"^\s*val loss\s+({ANY})\s*$", re.I)
_MAIN = re.compile(rf"^\s*s:(\d+) ((?:trl|tel|eval):{ANY}.*)$", re.I)
_TOKEN = re.compile(rf"\b(\w++):({ANY})", re.I)


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    last = "0"
    for number, line in lines:
        if match := _STEP.search(line):
            last = match[1]
            if match[2]:
                log.config["total_steps"] = int(match[2])
            yield pairs([("step", last), ("loss", match[3]), *_REST.findall(match[4])], anomalies, number)
        elif match := _VAL.search(line):
            yield pairs([("step", last), ("val loss", match[1])], anomalies, number)


def _main_rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if match := _MAIN.search(line):
            yield pairs([("s", match[1]), *_TOKEN.findall(match[2])], anomalies, number)


DIALECT = Dialect("llm.c", "llm.c log", re.compile(f"{_STEP.pattern}|{_VAL.pattern}", re.I), _rows)
MAIN_LOG = Dialect("llm.c-main", "llm.c main.log", _MAIN, _main_rows, roles={"step": "s"})
