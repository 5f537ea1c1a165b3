"""llm.c: what it prints, and its `main.log`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Log, Row
from steadyrun.importers.number_text import ANY

_STEP = re.compile(
    rf"^\s*step\s+(\d{{1,15}})(?:/(\d{{1,15}})\s*\||:(?=.*\(took))\s*(?:train )?loss\s+({ANY})(.*)", re.I
)
_REST = re.compile(rf"\|\s*(norm|lr)\s+({ANY})", re.I)
_VAL = re.compile(rf"^\s*val loss\s+({ANY})\s*$", re.I)
_MAIN = re.compile(rf"^\s*s:(\d+) ((?:trl|tel|eval):{ANY}.*)$", re.I)
_TOKEN = re.compile(rf"\b(\w++):({ANY})", re.I)


def _rows(lines: Lines, told: Anomalies, log: Log) -> Iterator[Row]:
    last = "0"
    for number, line in lines:
        if found := _STEP.search(line):
            last = found[1]
            if found[2]:
                log.config["total_steps"] = int(found[2])
            yield pairs([("step", last), ("loss", found[3]), *_REST.findall(found[4])], told, number)
        elif found := _VAL.search(line):
            yield pairs([("step", last), ("val loss", found[1])], told, number)


def _main_rows(lines: Lines, told: Anomalies, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if found := _MAIN.search(line):
            yield pairs([("s", found[1]), *_TOKEN.findall(found[2])], told, number)


DIALECT = Dialect("llm.c", "llm.c log", re.compile(f"{_STEP.pattern}|{_VAL.pattern}", re.I), _rows)
MAIN_LOG = Dialect("llm.c-main", "llm.c main.log", _MAIN, _main_rows, roles={"step": "s"})
