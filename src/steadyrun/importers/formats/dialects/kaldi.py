"""Kaldi's nnet3 trainers: `Average objective function for 'output' for minibatches 0-9 is -3.4 over 1280 frames`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, read
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_AVERAGE = re.compile(
    r"Average objective function for '([\w.-]{1,60})' for minibatches \d{1,15}-(\d{1,15}) is "
    rf"(?:{ANY} \+ {ANY} = )?({ANY})",
    re.I,
)
_OVERALL = re.compile(
    rf"Overall (average objective function|log-probability|accuracy) for '([\w.-]{{1,60}})' is ({ANY})", re.I
)


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    """The objective is a log-probability that rises: the loss is what it is below zero."""
    log.roles.setdefault("step", "minibatch")
    last = 0.0
    for number, line in lines:
        if match := _AVERAGE.search(line):
            value = read(match[3], anomalies, f"line {number:,}")
            last = float(match[2])
            if value is not None:
                anomalies.note("objective functions, which rise", "imported as losses, with the other sign")
                yield {"minibatch": last, "loss" if match[1] == "output" else f"{match[1]} loss": -value}
        elif match := _OVERALL.search(line):
            value = read(match[3], anomalies, f"line {number:,}")
            if value is not None:
                yield {"minibatch": last, f"overall {match[1].lower()} of {match[2]}": value}


DIALECT = Dialect("kaldi", "Kaldi nnet3 log", _AVERAGE, _rows, "mean since the last point")
