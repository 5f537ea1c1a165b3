"""fairseq's JSON lines: `2021-03-03 | INFO | train_inner | {"epoch": 1, "loss": "7.3", …}`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.form import Dialect, Lines
from steadyrun.importers.formats.jsonlines import parsed
from steadyrun.importers.formats.objects import row_of
from steadyrun.importers.model import Log, Row
from steadyrun.importers.told import Told

_ENTRY = re.compile(r"\|\s*(train_inner|train|valid[\w.-]*|test[\w.-]*)\s*\|\s*(\{.*\})\s*$", re.M)


def _rows(lines: Lines, told: Told, _log: Log) -> Iterator[Row]:
    for number, line in lines:
        if not (found := _ENTRY.search(line)):
            continue
        held = parsed(found[2])
        if not isinstance(held, dict):
            told.odd("lines that are no JSON object", "left out", f"line {number:,}")
            continue
        row = row_of(held, told, f"line {number:,}")
        prefix = "train_" if found[1].startswith("train") else f"{found[1].partition('_')[0]}_"
        if "num_updates" not in row and f"{prefix}num_updates" in row:
            row["num_updates"] = row.pop(f"{prefix}num_updates")
        yield row


DIALECT = Dialect("fairseq", "fairseq log", _ENTRY, _rows, "mean since the last point", {"step": "num_updates"})
