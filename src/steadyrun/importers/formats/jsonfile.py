"""JSON files: lines of objects, lists of them, whole runs in one object."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import LARGEST_JSON, binary, decoded, lines
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, Row, packed
from steadyrun.importers.number_text import TooLargeError, value

# Rows out of JSON objects: nested names joined, strings that spell numbers read, evaluation told from training.


_DEPTH = 4
SPLITS = ("mode", "split", "phase", "stage", "subset")
HELD_OUT = {"val", "valid", "validation", "eval", "evaluation", "test", "dev"}
_NAMES, _VALUES = ("name", "tag", "metric", "key", "metric_name"), ("value", "scalar", "metric_value")


def row_of(entry: Mapping[str, Any], anomalies: Anomalies, where: str = "") -> dict[str, float]:
    """The numbers of one object, by name."""
    row: dict[str, float] = {}
    for name, item in _flat(entry, "", _DEPTH):
        try:
            number = value(item)
        except TooLargeError as problem:
            anomalies.note("numbers larger than any float", "left out", f"{where}: {problem}")
            continue
        if number is not None:
            row[name] = number
    return _of_split(_long(entry, row), entry)


def _flat(entry: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, item in entry.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict):
            if depth > 1:
                yield from _flat(item, f"{name}/", depth - 1)
        else:
            yield name, item


def _long(entry: Mapping[str, Any], row: dict[str, float]) -> dict[str, float]:
    """An object that holds one metric, its name in one field and its value in another."""
    name = next((entry[key] for key in _NAMES if isinstance(entry.get(key), str)), None)
    field = next((key for key in _VALUES if key in row), None)
    if name is None or field is None:
        return row
    return {key: number for key, number in row.items() if key != field} | {name: row[field]}


def _of_split(row: dict[str, float], entry: Mapping[str, Any]) -> dict[str, float]:
    """Names of a row that says of itself that it is an evaluation, with `val_` in front."""
    split = next((str(entry[key]).lower() for key in SPLITS if isinstance(entry.get(key), str)), "")
    if split not in HELD_OUT:
        return row
    return {
        f"val_{name}" if "loss" in name.lower() and "val" not in name.lower() else name: number
        for name, number in row.items()
    }


# JSON lines: one object per line.


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


def _is_json_lines(sample: FileSample) -> bool:
    if binary(sample.head):
        return False
    first = [line for line in decoded(sample.head).splitlines() if line.strip()][:20]
    whole = first if len(first) < 20 else first[:-1]
    objects = [line for line in whole if line.lstrip().startswith("{") and isinstance(parsed(line), dict)]
    fewest = 1 if sample.path.suffix.lower() in {".jsonl", ".ndjson"} else 2  # a single object is rather a setting
    return len(objects) >= max(fewest, len(whole) // 2)


def _read_lines(path: Path, _key: str, anomalies: Anomalies) -> Log:
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


# JSON files that hold a whole run: Keras histories, lists of objects, Megatron's golden values.


def loaded(path: Path, anomalies: Anomalies) -> Any:
    """A JSON file; the error says at which line and column it ends to be JSON."""
    size = path.stat().st_size
    if size > LARGEST_JSON:
        raise LogError(
            f"{path} has {size / 2**20:,.0f} MB, more than the {LARGEST_JSON // 2**20} that one JSON file may have"
        )
    try:
        content = json.loads(decoded(path.read_bytes()).removeprefix("\ufeff"), parse_float=exact)
    except json.JSONDecodeError as problem:
        raise LogError(
            f"{path}, line {problem.lineno}, column {problem.colno}: {problem.msg}. Is it cut off?"
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise LogError(f"{path} is no JSON: {problem}") from problem
    anomalies.progress(size)
    return content


def _content(sample: FileSample) -> Any:
    """The file's content for detection: whole where it is small, else None."""
    if sample.path.suffix.lower() != ".json" and not sample.head.lstrip().startswith((b"{", b"[")):
        return None
    try:
        return (
            _whole(sample.path, sample.path.stat().st_mtime_ns) if sample.path.stat().st_size <= LARGEST_JSON else None
        )
    except (ValueError, RecursionError, OSError):
        return None


@lru_cache(maxsize=1)
def _whole(path: Path, _changed: int) -> Any:
    return json.loads(decoded(path.read_bytes()).removeprefix("\ufeff"), parse_float=exact)


# -- Megatron's golden values: {"lm loss": {"values": {"1": 12.9, …}}}, or a list with a start and an interval --------


def _golden(content: Any) -> bool:
    return isinstance(content, dict) and bool(content) and all(
        isinstance(series, dict) and isinstance(series.get("values"), dict | list) for series in content.values()
    )  # fmt: skip


def _read_golden(path: Path, _key: str, anomalies: Anomalies) -> Log:
    content = loaded(path, anomalies)
    if not _golden(content):
        raise LogError(f"{path} does not have the form of golden values")
    return Log(packed(_golden_rows(content, anomalies)))


def _golden_rows(content: Mapping[str, Any], anomalies: Anomalies) -> Iterator[Row]:
    rows: dict[int, dict[str, float]] = {}
    for name, series in content.items():
        for step, item in _golden_points(series):
            try:
                number = value(item)
            except TooLargeError:
                anomalies.note("numbers larger than any float", "left out", f"{name}, step {step}")
                continue
            if number is None or number != number:  # "nan" stands for steps at which nothing was kept
                anomalies.note(
                    "golden values that are nan",
                    "read as not logged, which is how the format writes it",
                    f"{name}, step {step}",
                )
            else:
                rows.setdefault(step, {"step": float(step)})[name] = number
    yield from (rows[step] for step in sorted(rows))


def _golden_points(series: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    values = series["values"]
    if isinstance(values, dict):
        yield from ((int(step), item) for step, item in values.items() if re.fullmatch(r"-?[0-9]{1,15}", step))
        return
    start, gap = value(series.get("start_step", 0)) or 0.0, value(series.get("step_interval", 1)) or 1.0
    if not math.isfinite(start) or not math.isfinite(gap):
        raise LogError(f"golden values begin at {start:g}, in steps of {gap:g}: give both as numbers")
    yield from ((int(start + index * gap), item) for index, item in enumerate(values))


# -- a list of numbers per name: Keras' History.history ---------------------------------------------------------------


def _columns(content: Any) -> Mapping[str, list[Any]] | None:
    """The lists of a history, those of `{"train": {"loss": […]}}` as `train/loss`; under `history` some keep it all."""
    if isinstance(content, dict) and isinstance(content.get("history"), dict):
        content = content["history"]
    if not isinstance(content, dict):
        return None
    lists = {
        name: column
        for name, column in _columns_below(content, "", 3)
        if column and not isinstance(column[0], dict | list)
    }
    return lists if lists and max(len(column) for column in lists.values()) > 1 else None


def _columns_below(content: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    for name, column in content.items():
        if isinstance(column, list):
            yield f"{prefix}{name}", column
        elif isinstance(column, dict) and depth > 1:
            yield from _columns_below(column, f"{prefix}{name}/", depth - 1)


def _read_history(path: Path, _key: str, anomalies: Anomalies) -> Log:
    columns = _columns(loaded(path, anomalies))
    if columns is None:
        raise LogError(f"{path} has no lists of numbers by name")
    return Log(packed(_history_rows(columns, anomalies)), kind="mean of an epoch")


def _history_rows(columns: Mapping[str, list[Any]], anomalies: Anomalies) -> Iterator[Row]:
    longest = max(len(column) for column in columns.values())
    short = [name for name, column in columns.items() if len(column) < longest]
    if short:
        anomalies.note(
            "lists shorter than the others", "their last values are missing", ", ".join(short[:3]), len(short)
        )
    counted = not {"epoch", "step", "iteration", "global_step"} & {name.lower() for name in columns}
    for index in range(longest):
        row: dict[str, float] = {"epoch": float(index)} if counted else {}
        for name, column in columns.items():
            try:
                number = value(column[index]) if index < len(column) else None
            except TooLargeError:
                anomalies.note("numbers larger than any float", "left out", f"{name}[{index}]")
                continue
            if number is not None:
                row[name] = number
        yield row


# -- a list of objects ------------------------------------------------------------------------------------------------


def _records(content: Any) -> list[Any] | None:
    """A list of objects, itself or the longest under a name."""
    if isinstance(content, dict):
        lists = [
            records
            for records in content.values()
            if isinstance(records, list) and records and isinstance(records[0], dict)
        ]
        content = max(lists, key=len, default=None)
    return content if isinstance(content, list) and len(content) > 1 and isinstance(content[0], dict) else None


def _read_records(path: Path, _key: str, anomalies: Anomalies) -> Log:
    records = _records(loaded(path, anomalies))
    if records is None:
        raise LogError(f"{path} has no list of objects")
    return Log(
        packed(
            row_of(record, anomalies, f"entry {index}")
            for index, record in enumerate(records)
            if isinstance(record, dict)
        )
    )


FORMATS = (
    Format("golden", "Megatron golden values", lambda sample: _golden(_content(sample)), _read_golden),
    Format("history", "history JSON (Keras)", lambda sample: _columns(_content(sample)) is not None, _read_history),
    Format("records", "JSON list of objects", lambda sample: _records(_content(sample)) is not None, _read_records),
    Format("jsonl", "JSON lines", _is_json_lines, _read_lines),
)
