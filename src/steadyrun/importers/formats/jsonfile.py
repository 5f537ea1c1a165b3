"""JSON files: lines of objects, lists of them, whole runs in one object."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import LARGEST_JSON, binary, decoded, lines
from steadyrun.importers.formats.json_curves import counts, curves, read_curves, taken_apart
from steadyrun.importers.formats.long_table import Points
from steadyrun.importers.formats.table_columns import (
    EVALUATIONS,
    SPLITS,
    LongColumns,
    held_out_name,
    in_context,
    long_columns,
    seconds,
)
from steadyrun.importers.likely_roles import role_of_file
from steadyrun.importers.log_rows import PACK, Anomalies, FileSample, Format, Log, Row, packed
from steadyrun.importers.number_text import TooLargeError, value
from steadyrun.importers.series_roles import name_of_file
from steadyrun.signals.curves import Floats

# Rows out of JSON objects: nested names joined, strings that spell numbers read, evaluation separated from training.


_DEPTH = 8
_SAMPLE = 20  # objects that show whether each is a row or a point
_SETTINGS = frozenset({"config", "hparams", "hyperparameters", "params", "args", "env_config"})


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
    return _of_split(row, entry)


def _flat(entry: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Names joined with `/`; settings, and objects that say they are a picture or a table, are not measurements."""
    for key, item in entry.items():
        name = f"{prefix}{key}"
        if not isinstance(item, dict):
            yield name, item[0] if isinstance(item, list) and len(item) == 1 else item
        elif depth > 1 and str(key).lower() not in _SETTINGS and "_type" not in item:
            yield from _flat(item, f"{name}/", depth - 1)


def _of_split(row: dict[str, float], entry: Mapping[str, Any]) -> dict[str, float]:
    """Names of a row that is marked as an evaluation, with `val_` in front."""
    held_out = any(entry[key].lower() in EVALUATIONS for key in SPLITS if isinstance(entry.get(key), str))
    return {held_out_name(name): number for name, number in row.items()} if held_out else row


def row_of_line(entry: Mapping[str, Any], anomalies: Anomalies, where: str) -> dict[str, float]:
    """The numbers of an object in a printed line; `{"key": "loss", "value": 0.5}` is a loss."""
    row = row_of(entry, anomalies, where)
    columns = _long([entry])
    if columns is None or columns.name is None or columns.value not in row:
        return row
    return {str(entry[columns.name]): row.pop(columns.value), **row}


def _log(entries: Iterable[tuple[str, Any]], path: Path, anomalies: Anomalies) -> Log:
    """The log of objects, each with where it stands: one row each, or one point each if they are a long table."""
    rest = iter(entries)
    first = list(islice(rest, _SAMPLE))
    columns = _long([entry for _, entry in first])
    if columns is None:
        return Log(packed(row for where, entry in chain(first, rest) if (row := row_of(entry, anomalies, where))))
    points = Points(path, anomalies)
    everything = chain(first, rest)
    while pack := list(islice(everything, PACK)):
        numbers = [row_of(entry, anomalies, where).get(columns.value) for where, entry in pack]
        names = [str(entry.get(columns.name or "") or "") for _, entry in pack]
        there = [at for at, number in enumerate(numbers) if number is not None and names[at]]
        if len(there) < len(pack):
            anomalies.note("objects without a name and a number", "left out", count=len(pack) - len(there))
        entries_there = [pack[at][1] for at in there]
        contexts = [str(entry.get(columns.context or "") or "") for entry in entries_there]
        points.add(
            [in_context(names[at], context) for at, context in zip(there, contexts, strict=True)],
            np.array([numbers[at] for at in there], float),
            step=_axis(entries_there, columns.step),
            epoch=_axis(entries_there, columns.epoch),
            timestamp=_axis(entries_there, columns.time),
        )
    return points.log()


def _long(entries: list[Mapping[str, Any]]) -> LongColumns | None:
    """The fields of objects that hold one point each; None if they hold whole rows."""
    fields = dict.fromkeys(name for entry in entries for name in entry)
    text = [name for name in fields if any(isinstance(entry.get(name), str) for entry in entries)]
    numbers = [name for name in fields if any(_numeric(entry.get(name)) for entry in entries)]
    columns = long_columns([name for name in text if name not in numbers], numbers)
    alike = columns and columns.name and all(entry.get(columns.name) and columns.value in entry for entry in entries)
    return columns if alike else None


def _numeric(item: Any) -> bool:
    try:
        return value(item) is not None
    except TooLargeError:
        return False


def _axis(entries: list[Mapping[str, Any]], name: str | None) -> Floats | None:
    """A field of objects as numbers, dates as seconds; NaN if it is missing."""
    if name is None:
        return None
    items = [entry.get(name) for entry in entries]
    dates = [seconds(item) if isinstance(item, str) else None for item in items]
    pairs = zip(items, dates, strict=True)
    found = [(value(item) if _numeric(item) else None) if date is None else date for item, date in pairs]
    return np.array([math.nan if number is None else number for number in found], float)


# JSON lines: one object per line.


_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.S)
_LONGEST_ENTRY = 2**20  # characters of an entry that is cut off: what fails earlier is not JSON
_BRACKETS = {"[": "]", "{": "}"}


def exact(text: str) -> float | str:
    """A number of JSON; one that no float can hold stays a text, so that it is not taken for an infinity."""
    number = float(text)
    return text if math.isinf(number) else number


def parsed(line: str) -> Any:
    """A line of JSON, or None. Python's reader also takes NaN and Infinity."""
    try:
        return json.loads(line.strip().removesuffix(","), parse_float=exact)
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
    return _log(_objects(path, anomalies), path, anomalies)


def _objects(path: Path, anomalies: Anomalies) -> Iterator[tuple[str, Any]]:
    objects = 0
    for number, line in lines(path, anomalies):
        if not line.strip():
            continue
        entry = parsed(line)
        if not isinstance(entry, dict):
            anomalies.note("lines that are not JSON objects", "left out", f"line {number:,}")
            continue
        objects += 1
        yield f"line {number:,}", entry
    if not objects:
        raise LogError(
            f'{path}: no line is a JSON object. Write one object per line, such as {{"step": 1, "loss": 2.5}}.'
        )


# JSON files that hold a whole run: Keras histories, lists of objects, Megatron's golden values.


def loaded(path: Path, anomalies: Anomalies) -> Any:
    """A JSON file; the error says at which line and column it ends to be JSON."""
    size = path.stat().st_size
    if size > LARGEST_JSON:
        raise LogError(
            f"{path} has {size / 2**20:,.0f} MB, more than the {LARGEST_JSON // 2**20} MB allowed. Save it as JSON "
            "lines"
        )
    try:
        content, cut = _parsed_file(path)
    except json.JSONDecodeError as problem:
        raise LogError(
            f"{path}, line {problem.lineno}, column {problem.colno}: {problem.msg}. The file may be cut off: copy it "
            "again, or save it as JSON lines."
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise LogError(f"{path} is not valid JSON: {problem}. Export it again, or as CSV.") from problem
    if cut:
        anomalies.note("a JSON file that is cut off", "read up to its last whole entry", cut)
    anomalies.progress(size)
    return content


def _parsed_file(path: Path) -> tuple[Any, str]:
    """A JSON file and, if it is cut off, the line at which its last whole entry ends; the rest is left out."""
    text = decoded(path.read_bytes()).removeprefix("\ufeff").strip("\0 \n\r\t")
    try:
        return json.loads(text, parse_float=exact), ""
    except json.JSONDecodeError as problem:
        if len(text) - problem.pos > _LONGEST_ENTRY:
            raise
        whole, closing = _up_to_last_entry(text)
        if problem.pos < whole or not whole:
            raise
        return json.loads(text[:whole] + closing, parse_float=exact), f"line {text.count(chr(10), 0, whole) + 1:,}"


def _up_to_last_entry(text: str) -> tuple[int, str]:
    """How much of a text is whole entries of a list, and the brackets that close what is open there."""
    opened: list[str] = []
    whole, closing = 0, ""
    for match in _TOKENS.finditer(text):
        token = match[0]
        if token in _BRACKETS:
            opened.append(_BRACKETS[token])
        elif token in ("}", "]"):
            if not opened or opened.pop() != token:
                return 0, ""
            if opened and opened[-1] == "]":
                whole, closing = match.end(), "".join(reversed(opened))
    return whole, closing


def _content(sample: FileSample) -> Any:
    """The file's content for detection: whole if it is small, else None."""
    if sample.path.suffix.lower() != ".json" and not sample.head.lstrip().startswith((b"{", b"[")):
        return None
    about = sample.path.stat()
    return _whole(sample.path, about.st_mtime_ns) if about.st_size <= LARGEST_JSON else None


@lru_cache(maxsize=1)
def _whole(path: Path, _changed: int) -> Any:
    """Kept, for every format asks it of the same file."""
    try:
        return _parsed_file(path)[0]
    except (ValueError, RecursionError, OSError):
        return None


# -- Megatron's golden values: {"lm loss": {"values": {"1": 12.9, …}}}, or a list with a start and an interval --------


def _golden(content: Any) -> bool:
    return isinstance(content, dict) and bool(content) and all(
        isinstance(series, dict) and isinstance(series.get("values"), dict | list) for series in content.values()
    )  # fmt: skip


def _read_golden(path: Path, _key: str, anomalies: Anomalies) -> Log:
    content = loaded(path, anomalies)
    if not _golden(content):
        raise LogError(f"{path} does not have the form of golden values.")
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


def _columns(content: Any, path: Path) -> Mapping[str, list[Any]] | None:
    """The lists of a history, those of `{"train": {"loss": […]}}` as `train/loss`; under `history` some keep it all.

    A list of numbers alone is the series that its file is named after.
    """
    if isinstance(content, list) and role_of_file(path) is not None and all(map(_numeric, content[:_SAMPLE])):
        content = {name_of_file(path.stem): content}
    if isinstance(content, dict) and isinstance(content.get("history"), dict):
        content = content["history"]
    if not isinstance(content, dict):
        return None
    lists = {
        name: column
        for name, column in _columns_below(content, "", 3)
        if column and not isinstance(column[0], dict | list)
    }
    longest = max((len(column) for column in lists.values()), default=0)
    return lists | taken_apart(content, longest) if longest > 1 else None


def _columns_below(content: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    for name, column in content.items():
        if isinstance(column, list):
            yield f"{prefix}{name}", column
        elif isinstance(column, dict) and counts(column):  # pandas' to_json
            yield f"{prefix}{name}", list(column.values())
        elif isinstance(column, dict) and depth > 1:
            yield from _columns_below(column, f"{prefix}{name}/", depth - 1)


def _read_history(path: Path, _key: str, anomalies: Anomalies) -> Log:
    columns = _columns(loaded(path, anomalies), path)
    if columns is None:
        raise LogError(f'{path} has no named lists of numbers, such as {{"loss": [2.3, 1.9]}}.')
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
    """A list of objects, itself or the longest under a name, or those that an object has by epoch or step."""
    if isinstance(content, dict) and content and all(isinstance(entry, dict) for entry in content.values()):
        by_count = counts(content)
        role = "epoch" if by_count in ([*range(len(content))], [*range(1, len(content) + 1)]) else "step"
        return [{role: at} | entry for at, entry in zip(by_count, content.values(), strict=bool(by_count))] or None
    if isinstance(content, dict):
        lists = [
            records
            for records in content.values()
            if isinstance(records, list) and records and isinstance(records[0], dict)
        ]
        content = max(lists, key=len, default=None)
    return content if isinstance(content, list) and len(content) > 1 and isinstance(content[0], dict) else None


def _read_records(path: Path, _key: str, anomalies: Anomalies) -> Log:
    content = loaded(path, anomalies)
    records = _records(content)
    if records is None:
        raise LogError(f'{path} has no list of objects, such as [{{"step": 1, "loss": 2.5}}].')
    objects = ((f"entry {index}", record) for index, record in enumerate(records) if isinstance(record, dict))
    log = _log(objects, path, anomalies)
    log.roles.update(_boosted(content))
    return log


def _boosted(content: Any) -> dict[str, str]:
    """The losses of CatBoost's catboost_training.json: it calls them by their data, and says that less is better."""
    meta = content.get("meta") if isinstance(content, dict) else None
    metrics = meta.get("learn_metrics") if isinstance(meta, dict) else None
    if not (isinstance(metrics, list) and len(metrics) == 1 and isinstance(metrics[0], dict)):
        return {}
    return {"loss": "learn", "val_loss": "test"} if metrics[0].get("best_value") == "Min" else {}


def _read_curves(path: Path, _key: str, anomalies: Anomalies) -> Log:
    return read_curves(loaded(path, anomalies), path, anomalies)


FORMATS = (
    Format("golden", "Megatron golden values", lambda sample: _golden(_content(sample)), _read_golden),
    Format(
        "curves",
        "JSON with a curve per series (ClearML, Comet, plots)",
        lambda sample: bool(curves(_content(sample))),
        _read_curves,
    ),
    Format(
        "history",
        "history JSON (Keras)",
        lambda sample: _columns(_content(sample), sample.path) is not None,
        _read_history,
    ),
    Format("records", "JSON list of objects", lambda sample: _records(_content(sample)) is not None, _read_records),
    Format("jsonl", "JSON lines", _is_json_lines, _read_lines),
)
