"""Megatron-LM and its forks: `iteration 100/ 1000 | lm loss: 2.3E+00 | grad norm: 1.2 | …`, at times wrapped."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines, pairs, read
from steadyrun.importers.log_rows import Anomalies, Log, Row
from steadyrun.importers.number_text import ANY

_STEP = re.compile(r"\biteration\s+(\d[\d,]{0,15})\s*/\s*(\d[\d,]{0,15})\s*\|", re.I)
_NOT_IN_NAMES = re.compile(r"[^\w ()/.-]")
_NAME = re.compile(r"[A-Za-z].*")
_VALUE = re.compile(rf"^\s*+({ANY})\s*+", re.I)
_VALID = re.compile(
    r"valid(?:ation)? (?:loss|results) at iteration\s++(\d[\d,]{0,15})[^|]{0,300}\|"
    rf".{{0,300}}?loss value:\s*+({ANY})",
    re.I,
)
_WRAPPED = 4  # lines that one entry may be wrapped over


def _rows(lines: Lines, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    entry: list[str] = []  # an entry's lines
    began, last = 0, None
    for number, line in lines:
        starts = _STEP.search(line)
        ends = starts or _VALID.search(line) or "|" not in line or len(entry) >= _WRAPPED
        if entry and ends:
            row = _finished(" ".join(entry), began, last, anomalies)
            last, entry = row["iteration"], []
            yield row
        if starts:
            log.config["total_iterations"] = int(starts[2].replace(",", ""))
            entry, began = [line], number
        elif match := _VALID.search(line):
            at, loss = read(match[1], anomalies, f"line {number:,}"), read(match[2], anomalies, f"line {number:,}")
            if at is not None and loss is not None:
                yield {"iteration": at, "validation loss": loss}
        elif entry:
            entry.append(line)
    if entry:
        yield _finished(" ".join(entry), began, last, anomalies)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Names and numbers of cells `name: number` between bars."""
    for cell in text.split("|"):
        before, _, after = cell.rpartition(":")
        name, value = _NAME.search(_NOT_IN_NAMES.split(before.rstrip())[-1]), _VALUE.fullmatch(after)
        if name and value:
            yield name[0], value[1]


def _finished(text: str, line: int, last: float | None, anomalies: Anomalies) -> Row:
    """An entry and its meaning: a norm of 0.000 was not measured, skipped iterations are a fraction, NaN is noted."""
    match = _STEP.search(text)
    assert match is not None
    row = {"iteration": float(match[1].replace(",", "")), **pairs(list(_fields(text[match.end() :])), anomalies, line)}
    if "lm_loss" in row:  # GPT-NeoX
        row["lm loss"] = row.pop("lm_loss")
    if row.get("grad norm") == 0:
        del row["grad norm"]
        anomalies.note("gradient norms printed as 0.000", "read as not measured", f"line {line:,}")
    steps = max(1.0, row["iteration"] - last if last is not None else 1.0)
    skipped = row.get("number of skipped iterations", math.nan)
    if math.isfinite(skipped):
        row["skipped share"] = min(1.0, skipped / steps)
    lost = row.get("number of nan iterations", 0.0)
    if not math.isfinite(lost):  # not a count
        lost = 0.0
    if lost >= steps or (lost and row.get("lm loss") == 0):  # the mean of no losses is printed as zero
        row["lm loss"] = math.nan
    elif lost:
        anomalies.note(
            "iterations with a NaN loss, left out of the printed mean", "the mean is kept", f"line {line:,}", int(lost)
        )
    return row


DIALECT = Dialect(
    "megatron",
    "Megatron log",
    re.compile(rf"{_STEP.pattern}|{_VALID.pattern}", re.I),
    _rows,
    "mean since the last point",
    {"step": "iteration", "loss": "lm loss", "val_loss": "validation loss", "skipped": "skipped share"},
)
