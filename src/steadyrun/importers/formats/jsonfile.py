"""JSON files that hold a whole run: Keras histories, lists of objects, Megatron's golden values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from steadyrun.errors import LogError
from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.formats.jsonlines import exact
from steadyrun.importers.formats.objects import row_of
from steadyrun.importers.log_lines import LARGEST_JSON, decoded
from steadyrun.importers.log_rows import FileSample, Format, Log, Row, packed
from steadyrun.importers.number_text import TooLargeError, value


def loaded(path: Path, told: Anomalies) -> Any:
    """A JSON file; the error says at which line and column it ends to be JSON."""
    size = path.stat().st_size
    if size > LARGEST_JSON:
        raise LogError(
            f"{path} has {size / 2**20:,.0f} MB, more than the {LARGEST_JSON // 2**20} that one JSON file may have"
        )
    try:
        held = json.loads(decoded(path.read_bytes()).removeprefix("\ufeff"), parse_float=exact)
    except json.JSONDecodeError as problem:
        raise LogError(
            f"{path}, line {problem.lineno}, column {problem.colno}: {problem.msg}. Is it cut off?"
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise LogError(f"{path} is no JSON: {problem}") from problem
    told.progress(size)
    return held


def _held(look: FileSample) -> Any:
    """The file's content for detection: whole where it is small, else None."""
    if look.path.suffix.lower() != ".json" and not look.head.lstrip().startswith((b"{", b"[")):
        return None
    try:
        return _whole(look.path, look.path.stat().st_mtime_ns) if look.path.stat().st_size <= LARGEST_JSON else None
    except (ValueError, RecursionError, OSError):
        return None


@lru_cache(maxsize=1)
def _whole(path: Path, _changed: int) -> Any:
    return json.loads(decoded(path.read_bytes()).removeprefix("\ufeff"), parse_float=exact)


# -- Megatron's golden values: {"lm loss": {"values": {"1": 12.9, …}}}, or a list with a start and an interval --------


def _golden(held: Any) -> bool:
    return isinstance(held, dict) and bool(held) and all(
        isinstance(each, dict) and isinstance(each.get("values"), dict | list) for each in held.values()
    )  # fmt: skip


def _read_golden(path: Path, _key: str, told: Anomalies) -> Log:
    held = loaded(path, told)
    if not _golden(held):
        raise LogError(f"{path} does not have the form of golden values")
    return Log(packed(_golden_rows(held, told)))


def _golden_rows(held: Mapping[str, Any], told: Anomalies) -> Iterator[Row]:
    rows: dict[int, dict[str, float]] = {}
    for name, each in held.items():
        for step, item in _golden_points(each):
            try:
                found = value(item)
            except TooLargeError:
                told.note("numbers larger than any float", "left out", f"{name}, step {step}")
                continue
            if found is None or found != found:  # "nan" stands for steps at which nothing was kept
                told.note(
                    "golden values that are nan",
                    "read as not logged, which is how the format writes it",
                    f"{name}, step {step}",
                )
            else:
                rows.setdefault(step, {"step": float(step)})[name] = found
    yield from (rows[step] for step in sorted(rows))


def _golden_points(each: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    values = each["values"]
    if isinstance(values, dict):
        yield from ((int(step), item) for step, item in values.items() if re.fullmatch(r"-?[0-9]{1,15}", step))
        return
    start, gap = value(each.get("start_step", 0)) or 0.0, value(each.get("step_interval", 1)) or 1.0
    if not math.isfinite(start) or not math.isfinite(gap):
        raise LogError(f"golden values begin at {start:g}, in steps of {gap:g}: give both as numbers")
    yield from ((int(start + place * gap), item) for place, item in enumerate(values))


# -- a list of numbers per name: Keras' History.history ---------------------------------------------------------------


def _columns(held: Any) -> Mapping[str, list[Any]] | None:
    """The lists of a history, those of `{"train": {"loss": […]}}` as `train/loss`; under `history` some keep it all."""
    if isinstance(held, dict) and isinstance(held.get("history"), dict):
        held = held["history"]
    if not isinstance(held, dict):
        return None
    lists = {name: each for name, each in _flat(held, "", 3) if each and not isinstance(each[0], dict | list)}
    return lists if lists and max(len(each) for each in lists.values()) > 1 else None


def _flat(held: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    for name, each in held.items():
        if isinstance(each, list):
            yield f"{prefix}{name}", each
        elif isinstance(each, dict) and depth > 1:
            yield from _flat(each, f"{prefix}{name}/", depth - 1)


def _read_history(path: Path, _key: str, told: Anomalies) -> Log:
    columns = _columns(loaded(path, told))
    if columns is None:
        raise LogError(f"{path} has no lists of numbers by name")
    return Log(packed(_history_rows(columns, told)), kind="mean of an epoch")


def _history_rows(columns: Mapping[str, list[Any]], told: Anomalies) -> Iterator[Row]:
    longest = max(len(each) for each in columns.values())
    short = [name for name, each in columns.items() if len(each) < longest]
    if short:
        told.note("lists shorter than the others", "their last values are missing", ", ".join(short[:3]), len(short))
    counted = not {"epoch", "step", "iteration", "global_step"} & {name.lower() for name in columns}
    for place in range(longest):
        row: dict[str, float] = {"epoch": float(place)} if counted else {}
        for name, each in columns.items():
            try:
                found = value(each[place]) if place < len(each) else None
            except TooLargeError:
                told.note("numbers larger than any float", "left out", f"{name}[{place}]")
                continue
            if found is not None:
                row[name] = found
        yield row


# -- a list of objects ------------------------------------------------------------------------------------------------


def _records(held: Any) -> list[Any] | None:
    """A list of objects, itself or the longest under a name."""
    if isinstance(held, dict):
        lists = [each for each in held.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
        held = max(lists, key=len, default=None)
    return held if isinstance(held, list) and len(held) > 1 and isinstance(held[0], dict) else None


def _read_records(path: Path, _key: str, told: Anomalies) -> Log:
    held = _records(loaded(path, told))
    if held is None:
        raise LogError(f"{path} has no list of objects")
    return Log(
        packed(row_of(each, told, f"entry {place}") for place, each in enumerate(held) if isinstance(each, dict))
    )


FORMATS = (
    Format("golden", "Megatron golden values", lambda look: _golden(_held(look)), _read_golden),
    Format("history", "history JSON (Keras)", lambda look: _columns(_held(look)) is not None, _read_history),
    Format("records", "JSON list of objects", lambda look: _records(_held(look)) is not None, _read_records),
)
