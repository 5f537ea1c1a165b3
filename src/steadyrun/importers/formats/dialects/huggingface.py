"""What the Hugging Face Trainer prints: dictionaries between progress bars. They have epochs, the bars have steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs
from steadyrun.importers.log_rows import Anomalies, Log, Row

_KEYS = r"loss|eval_[\w./-]*loss|train_runtime|eval_runtime"
_ENTRY = re.compile(rf"\{{(?=[^{{}}]*+\}})[^{{}}]*?'(?:{_KEYS})': [^{{}}]*+\}}")
_PAIR = re.compile(r"'([^']+)':\s*+('?[^,'}]++'?)")
_BAR = re.compile(r"\|\s*(\d{1,15})/(\d{1,15})\s*\[")
_TOTAL = re.compile(r"Total optimization steps\s*=\s*(\d[\d,]{0,15})\b")
_COUNT = re.compile(r"\b(?:epoch|step|iter(?:ation)?)s?\W{0,3}\d", re.I)
_AHEAD, _STALE = 20_000, 0.1


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    """Entries, with steps only if the bars keep up: a bar is drawn now and then, entries come when they come."""
    entries = _entries(lines, anomalies, log)
    ahead = list(islice(entries, _AHEAD))
    steps = [row["step"] for row in ahead if "step" in row and "loss" in row]
    stale = sum(now == before for before, now in pairwise(steps))
    if stale <= _STALE * len(steps):
        yield from chain(ahead, entries)
        return
    anomalies.note(
        "progress bars that were drawn less often than values were printed", "not used for steps", count=stale
    )
    for row in chain(ahead, entries):
        yield {name: value for name, value in row.items() if name != "step"}


def _entries(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    total: int | None = None
    step: int | None = None
    for number, line in lines:
        if match := _TOTAL.search(line):
            total = int(match[1].replace(",", ""))
            log.config["total_steps"] = total
        for bar in _BAR.finditer(line):
            total = int(bar[2]) if total is None else total
            if int(bar[2]) == total:  # the bars of evaluations have other lengths
                step = int(bar[1])
        for match in _ENTRY.finditer(line):
            row = pairs(_PAIR.findall(match[0]), anomalies, number)
            if "train_runtime" in row:  # the mean of the whole run
                row.pop("train_loss", None)
            if step is not None and "step" not in row:
                row["step"] = float(step)
            if row:
                yield row


def _sure(lines: list[str]) -> bool:
    """Not if a line says in front of the dictionary where it stands: `Epoch 3: {'loss': 0.5}`."""
    found = [(line, match) for line in lines if (match := _ENTRY.search(line))]
    return any("'epoch'" in match[0] or not _COUNT.search(line, 0, match.start()) for line, match in found)


DIALECT = Dialect("huggingface", "Hugging Face Trainer log", _ENTRY, _rows, "mean since the last point", sure=_sure)
