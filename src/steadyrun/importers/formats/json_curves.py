"""JSON that holds a curve per series: ClearML's and Comet's exports, plots, histories by name, TensorBoard's downloads.

A curve is an object with the lists `x` and `y`, a list of `{"step": 1, "value": 2.5}`, a list of `[step, value]` or
`[time, step, value]`, or an object from step to value. Its name is the path to it. Several lists of objects under names
(`{"train": […], "val": […]}`) have a curve for every number in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steadyrun.errors import LogError
from steadyrun.importers.formats.long_table import EPOCH, STEP, TIME, Points, series_of_file
from steadyrun.importers.formats.table_columns import axis, first_of, plain
from steadyrun.importers.log_rows import WIDEST, Anomalies, Log
from steadyrun.importers.number_text import TooLargeError, value
from steadyrun.importers.series_roles import rank

_DEPTH = 8
_X = ("x", "step", "steps", "iteration", "iterations", "iter", "iters", "epoch", "epochs")
_Y = ("y", "value", "values")
_TITLES = ("name", "label", "metricname", "title")
_AROUND = frozenset({"data", "jsons", "content", "scalars", "metrics", "history", "logs", "traces", "results"})
_COUNT = re.compile(r"(?:[a-zA-Z]{1,20}[ _-]?)?(\d{1,15})")


@dataclass(frozen=True)
class Curve:
    """One series: its values, and lists of as many steps, epochs or times."""

    name: str
    values: Sequence[Any]
    axes: Mapping[str, Sequence[Any]]
    listed: str = ""  # the path of the list of objects that it is one of the numbers of


def curves(content: Any) -> list[Curve]:
    """The curves of a JSON file; none if it is something else."""
    found = list(_below(content, (), _DEPTH))
    plots = [curve for curve in found if not curve.listed]
    if any(rank(role, curve.name) is not None for role in (STEP, EPOCH) for curve in plots):
        return []  # columns with an axis of their own
    columns = isinstance(content, dict) and any(_numbers(item) and len(item) > 1 for item in content.values())
    chosen = plots or (found if len({curve.listed for curve in found}) > 1 and not columns else [])
    return chosen if max((len(curve.values) for curve in chosen), default=0) > 1 else []


def _below(content: Any, path: tuple[str, ...], depth: int) -> Iterator[Curve]:
    if not depth or not content:
        return
    if isinstance(content, dict):
        yield from _in_object(content, path, depth)
    elif isinstance(content, list) and isinstance(content[0], dict):
        yield from _in_list(content, path, depth)
    elif isinstance(content, list) and _numbers(content[0]) and len(content[0]) in (2, 3):
        rows = [row for row in content if isinstance(row, list) and len(row) == len(content[0])]
        *times, steps, values = zip(*rows, strict=True)
        yield Curve(_name(path), values, {STEP: steps} | ({TIME: times[0]} if times else {}))


def _in_object(content: Mapping[str, Any], path: tuple[str, ...], depth: int) -> Iterator[Curve]:
    if (pair := _pair(content)) is not None:
        x, y = pair
        yield Curve(_name(path, content), content[y], {EPOCH if plain(x).startswith("epoch") else STEP: content[x]})
    elif (steps := counts(content)) and all(isinstance(item, int | float) for item in content.values()):
        yield Curve(_name(path), list(content.values()), {STEP: steps})
    else:
        for name, item in content.items():
            yield from _below(item, (*path, str(name)), depth - 1)


def _in_list(content: list[Any], path: tuple[str, ...], depth: int) -> Iterator[Curve]:
    if _pair(content[0]) is not None:
        for entry in content:
            yield from _below(entry, path, depth - 1)
        return
    entries = [entry for entry in content if isinstance(entry, dict)]
    names = [name for name, item in content[0].items() if _number(item)]
    texts = [name for name, item in content[0].items() if isinstance(item, str)]
    by = {STEP: axis(STEP, names), EPOCH: axis(EPOCH, names), TIME: axis("time", names)}
    axes = {role: [entry.get(name) for entry in entries] for role, name in by.items() if name}
    only = first_of(_Y, names)
    if only is not None and path and not first_of(_TITLES, texts):
        yield Curve(_name(path), [entry.get(only) for entry in entries], axes)
        return
    for name in dict.fromkeys(name for entry in entries for name, item in entry.items() if path and _number(item)):
        if name not in by.values():
            own = "/".join(word for word in (_name(path), name) if word)
            yield Curve(own, [entry.get(name) for entry in entries], axes, listed="/".join(path))


def _pair(content: Any) -> tuple[str, str] | None:
    """The names of the two lists of a curve: as long as each other, and of numbers."""
    if not isinstance(content, dict):
        return None
    lists = [name for name, item in content.items() if isinstance(item, list) and _numbers(item[:1] or [None])]
    y = first_of(_Y, lists)
    x = first_of(_X, [name for name in lists if name != y])
    return (x, y) if x and y and len(content[x]) == len(content[y]) else None


def counts(content: Mapping[str, Any]) -> list[int]:
    """The steps or epochs that the names of an object are, such as `1` or `epoch_1`; none if they are not."""
    found = [_COUNT.fullmatch(name) for name in content]
    return [int(match[1]) for match in found if match] if len(found) > 1 and all(found) else []


def taken_apart(content: Mapping[str, Any], length: int) -> dict[str, list[Any]]:
    """Lists of objects, as long as the other lists of a history: a list for each name in them."""
    found: dict[str, list[Any]] = {}
    for name, column in content.items():
        if isinstance(column, list) and len(column) == length and all(isinstance(entry, dict) for entry in column):
            inner = dict.fromkeys(key for entry in column for key in entry)
            found |= {f"{name}/{key}": [entry.get(key) for entry in column] for key in list(inner)[:WIDEST]}
    return found


def _name(path: tuple[str, ...], content: Mapping[str, Any] | None = None) -> str:
    """The path to a curve, or its own name if the path has none."""
    words = [word for word in path if word.lower() not in _AROUND]
    title = first_of(_TITLES, [name for name, item in (content or {}).items() if isinstance(item, str) and item])
    own = str((content or {})[title]) if title else ""
    return "/".join(words) if not own or (words and words[-1] == own) else "/".join([*words, own])


def _number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _numbers(item: Any) -> bool:
    return isinstance(item, list) and all(_number(each) for each in item)


def read_curves(content: Any, path: Path, anomalies: Anomalies) -> Log:
    """The log that the curves of a JSON file are."""
    points = Points(path, anomalies)
    found = curves(content)
    if not found:
        raise LogError(f"{path} has no curves. A curve is an object with lists x and y, or a list of [step, value].")
    for curve in found:
        values, missing = _floats(curve.values, curve.name, anomalies)
        axes = {role: _floats(column, role, anomalies)[0][~missing] for role, column in curve.axes.items()}
        name = curve.name or series_of_file(path)
        points.add([name] * int(np.sum(~missing)), values[~missing], **axes)
    return points.log()


def _floats(items: Sequence[Any], name: str, anomalies: Anomalies) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, and which of them are missing."""
    numbers: list[float | None] = []
    for item in items:
        try:
            numbers.append(value(item))
        except TooLargeError:
            anomalies.note("numbers larger than any float", "left out", name)
            numbers.append(None)
    missing = np.array([number is None for number in numbers], bool)
    return np.array([np.nan if number is None else number for number in numbers], float), missing
