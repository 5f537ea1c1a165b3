"""Rows out of JSON objects: nested names joined, strings that spell numbers read, evaluation told from training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steadyrun.importers.anomalies import Anomalies
from steadyrun.importers.number_text import TooLargeError, value

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
