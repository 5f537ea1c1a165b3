"""What Keras prints: `Epoch 3/10`, then bars whose losses are running means: the last line of an epoch counts.

Bars of another length below the end of an epoch are an evaluation after the training.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_EPOCH = re.compile(
    r"^\s*+(?:\[?\d{4}-\d\d-\d\d[^A-Za-z]{1,40}(?:UTC\b[^A-Za-z]{1,10})?)?Epoch (\d{1,9})(?:/(\d{1,9}))?\s*$"
)
_BAR = re.compile(r"^\s*+(?P<at>\d++)/(?P<of>\d++|Unknown)\b(?P<rest>.* - [\w./]++: .*)$")
_FIELD = re.compile(rf" - ([\w./-]+): ({ANY})(?=\s|$)", re.I)
_LINE = re.compile(r"^\s*+\d++/(?:\d++|Unknown) (?:\[[=>. ]*+\]|[━╸╺ -]).* - (?:\w+_)?loss: \S")


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    epoch, last = 0.0, None
    row: dict[str, float] = {}
    for number, line in lines:
        if match := _EPOCH.match(line):
            if row:
                yield {"epoch": epoch, **row}
            epoch, row, last = float(match[1]), {}, None
            log.config.update({"epochs": int(match[2])} if match[2] else {})
        elif (match := _BAR.match(line)) and (fields := _FIELD.findall(match["rest"])):
            if last is not None and last["at"] == last["of"] != match["of"]:
                continue
            last = match
            row = pairs(fields, anomalies, number)
    if row and last is not None:
        if last["at"] != last["of"]:
            anomalies.note(
                "an epoch that did not end", "its last line is kept: the mean so far", f"{last['at']}/{last['of']}"
            )
        yield {"epoch": epoch, **row}


DIALECT = Dialect("keras", "Keras progress lines", _LINE, _rows, "mean of an epoch")
