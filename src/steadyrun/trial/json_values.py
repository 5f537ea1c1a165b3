"""Replace values in the text of a JSON file; only the tokens of these values change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Path = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_SMALLEST = 1e-7  # smallest value written without an exponent, if the old one had none


def with_values(text: str, changes: Mapping[Path, Any]) -> str:
    """The text with these values; a missing one is added at the end of its object."""
    for path, value in changes.items():
        spans = _spans(text)
        if path in spans:
            start, end = spans[path]
            text = text[:start] + token(value, text[start:end]) + text[end:]
        else:
            text = _with_added(text, spans, path, value)
    return text


def token(value: Any, before: str = "") -> str:
    """A value as JSON, a number in the notation of the old one."""
    if isinstance(value, list | tuple):
        parts = re.findall(r"[^\[\],\s]+", before)
        alike = parts if len(parts) == len(value) else [""] * len(value)
        return f"[{', '.join(token(each, part) for each, part in zip(value, alike, strict=True))}]"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value, ensure_ascii=False)
    if float(value).is_integer() and re.fullmatch(r"-?\d+", before):
        return str(int(value))
    text = json.dumps(value)
    if before and "e" not in before.lower() and abs(value) >= _SMALLEST:
        return f"{Decimal(text):f}"
    short = text if re.search(r"e[+-]0\d", before.lower()) else re.sub(r"e([+-])0+(\d)", r"e\1\2", text)
    return short.upper() if "E" in before else short


def _spans(text: str) -> dict[Path, tuple[int, int]]:
    """The start and end of each value."""
    found: dict[Path, tuple[int, int]] = {}
    _walk(text, 0, (), found)
    return found


def _walk(text: str, place: int, path: Path, found: dict[Path, tuple[int, int]]) -> int:
    start = place = _skipped(text, place)
    if text[place] not in "{[":
        place = _DECODER.raw_decode(text, place)[1]
        found[path] = (start, place)
        return place
    is_object, index = text[place] == "{", 0
    place = _skipped(text, place + 1)
    while text[place] not in "}]":
        key: str | int = index
        if is_object:
            key, place = _DECODER.raw_decode(text, place)
            place = _skipped(text, place) + 1  # the colon
        place = _skipped(text, _walk(text, place, (*path, key), found))
        place = _skipped(text, place + 1) if text[place] == "," else place
        index += 1
    found[path] = (start, place + 1)
    return place + 1


def _skipped(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return place if match is None else match.end()


def _with_added(text: str, spans: Mapping[Path, tuple[int, int]], path: Path, value: Any) -> str:
    """The text with a value added to the end of its object; unchanged if another value is in the way."""
    depth = max(length for length in range(len(path)) if path[:length] in spans)
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    start, end = spans[path[:depth]]
    if text[start] != "{":
        return text
    inside = text[start + 1 : end - 1]
    space = inside[: len(inside) - len(inside.lstrip())]
    entry = f"{json.dumps(str(path[depth]))}: {token(value)}"
    kept = inside.rstrip()
    if not kept:
        return f"{text[: start + 1]}{entry}{text[end - 1 :]}"
    comma = f",{space}" if "\n" in space else ", "
    return f"{text[: start + 1]}{kept}{comma}{entry}{inside[len(kept) :]}{text[end - 1 :]}"
