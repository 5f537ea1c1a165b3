"""JSON lines: one object per line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.clean_lines import binary, decoded, lines
from steadyrun.importers.formats.objects import row_of
from steadyrun.importers.log_rows import FileSample, Format, Log, Row, packed


def exact(text: str) -> float | str:
    """A number of JSON; one that no float can hold stays a text, so that it is not taken for an infinity."""
    number = float(text)
    return text if math.isinf(number) else number


def parsed(line: str) -> Any:
    """A line of JSON; None where it is none. Python's reader takes NaN and Infinity, too."""
    try:
        return json.loads(line, parse_float=exact)
    except (ValueError, RecursionError):
        return None


def _detect(sample: FileSample) -> bool:
    if binary(sample.head):
        return False
    first = [line for line in decoded(sample.head).splitlines() if line.strip()][:20]
    whole = first if len(first) < 20 else first[:-1]
    objects = [line for line in whole if line.lstrip().startswith("{") and isinstance(parsed(line), dict)]
    fewest = 1 if sample.path.suffix.lower() in {".jsonl", ".ndjson"} else 2  # a single object is rather a setting
    return len(objects) >= max(fewest, len(whole) // 2)


def _read(path: Path, _key: str, anomalies: Anomalies) -> Log:
    return Log(packed(_rows(path, anomalies)))


def _rows(path: Path, anomalies: Anomalies) -> Iterator[Row]:
    objects = 0
    for number, line in lines(path, anomalies):
        if not line.strip():
            continue
        entry = parsed(line)
        if not isinstance(entry, dict):
            anomalies.note("lines that are no JSON object", "left out", f"line {number:,}")
            continue
        objects += 1
        if row := row_of(entry, anomalies, f"line {number:,}"):
            yield row
    if not objects:
        raise LogError(f"{path}: no line is a JSON object")


FORMAT = Format("jsonl", "JSON lines", _detect, _read)
