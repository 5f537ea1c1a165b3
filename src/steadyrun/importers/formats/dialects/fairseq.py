"""fairseq: JSON (`| train_inner | {"epoch": 1, "loss": "7.3", …}`) or text (`| epoch 001 | loss 6.3 | …`)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.formats.jsonfile import parsed, row_of
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_FRONT = r"^.{0,300}?\|\s*+"  # what a program prints before an entry has an end: nothing is looked for behind it
_ENTRY = re.compile(rf"{_FRONT}(train_inner|train|valid[\w.-]*+|test[\w.-]*+)\s*+\|\s*+(\{{.*\}})\s*$")
_TEXT = re.compile(rf"{_FRONT}epoch\s++(\d++)\b(?=.*\bloss[ =])(.*\bnum_updates[ =]\d.*)$")
_FIELD = re.compile(rf"\b([a-z]\w*)[ =]({ANY})(?=[\s,|%]|$)", re.I)


def _rows(lines: Lines, anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if match := _ENTRY.search(line):
            entry = parsed(match[2])
            if isinstance(entry, dict):
                yield _named(row_of(entry, anomalies, f"line {number:,}"), match[1])
            else:
                anomalies.note("lines that are not JSON objects", "left out", f"line {number:,}")
        elif match := _TEXT.search(line):
            yield _text_row(line, match[1], match[2], anomalies, number)


def _named(row: dict[str, float], part: str) -> Row:
    prefix = "train_" if part.startswith("train") else f"{part.partition('_')[0]}_"
    if "num_updates" not in row and f"{prefix}num_updates" in row:
        row["num_updates"] = row.pop(f"{prefix}num_updates")
    return row


def _text_row(line: str, epoch: str, rest: str, anomalies: Anomalies, number: int) -> Row:
    """A line of values since the last one has a place in the epoch (`: 450 / 1891`); one without sums an epoch up."""
    row = pairs([("epoch", epoch), *_FIELD.findall(rest)], anomalies, number)
    if "valid on" in line:
        prefix = "valid_"
    elif re.match(r":\s*\d+ /|:\s*\d+%", rest):
        prefix = ""
    else:
        prefix = "epoch's "
    kept = {"epoch", "num_updates", "lr"}
    return {
        name if name in kept or name.startswith(prefix) else f"{prefix}{name}": value for name, value in row.items()
    }


DIALECT = Dialect(
    "fairseq",
    "fairseq log",
    re.compile(f"{_ENTRY.pattern}|{_TEXT.pattern}"),
    _rows,
    "mean since the last point",
    {"step": "num_updates"},
)
