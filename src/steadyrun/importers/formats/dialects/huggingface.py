"""What the Hugging Face Trainer prints: dictionaries between progress bars. They have epochs, the bars have steps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.form import Dialect, Lines, pairs
from steadyrun.importers.model import Log, Row
from steadyrun.importers.told import Told

_ENTRY = re.compile(r"\{\s*'(?:loss|eval_\w*loss|train_runtime|eval_runtime|learning_rate|grad_norm)':[^{}]*\}")
_PAIR = re.compile(r"'([^']+)':\s*('?[^,'}]+'?)")
_BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[")
_TOTAL = re.compile(r"Total optimization steps\s*=\s*([\d,]+)")


def _rows(lines: Lines, told: Told, log: Log) -> Iterator[Row]:
    total: int | None = None
    step: int | None = None
    for number, line in lines:
        if found := _TOTAL.search(line):
            total = int(found[1].replace(",", ""))
            log.config["total_steps"] = total
        for bar in _BAR.finditer(line):
            total = int(bar[2]) if total is None else total
            if int(bar[2]) == total:  # the bars of evaluations have other lengths
                step = int(bar[1])
        for found in _ENTRY.finditer(line):
            row = pairs(_PAIR.findall(found[0]), told, number)
            if "train_runtime" in row:  # the mean of the whole run
                row.pop("train_loss", None)
            if step is not None:
                row["step"] = float(step)
            if row:
                yield row


DIALECT = Dialect("huggingface", "Hugging Face Trainer log", _ENTRY, _rows, "mean since the last point")
