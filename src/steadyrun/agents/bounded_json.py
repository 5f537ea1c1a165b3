"""Answers that fit into an agent's context: short texts, short lists, and a count of what was cut.

Text from a run is data. It stays inside JSON strings, in ASCII, with control characters escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steadyrun.store.jsonio import jsonable
from steadyrun.store.run_summary import printable

SCHEMA = 2
MOST = 18_000  # characters of one answer
LONGEST = 600  # characters of one text
_ITEMS = 40  # of a list or an object within a list
_DEEPEST = 6
_TIGHTER = ((300, 20), (100, 10), (50, 5), (30, 2))  # characters of a text, items of a list
_DIGITS = 7

Answer = dict[str, Any]


def dumps(answer: Mapping[str, Any]) -> str:
    """Encode an answer as one line of ASCII, with its keys in order."""
    return json.dumps({"schema": SCHEMA} | jsonable(answer), allow_nan=False, separators=(", ", ": "))


def sent(answer: Answer) -> str:
    """Encode an answer within the limit; oversized content outside of lists is cut harder."""
    text = dumps(answer)
    for longest, items in _TIGHTER:
        if len(text) <= MOST:
            break
        text = dumps({key: harmless(value, longest, items) for key, value in answer.items()})
    return text


def harmless(value: Any, longest: int = LONGEST, items: int = _ITEMS, depth: int = _DEEPEST) -> Any:
    """A value from a run with texts on one line, long texts and lists cut and marked, and short numbers."""
    if isinstance(value, str):
        return short(value, longest)
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, Mapping | list | tuple) and depth == 0:
        return f"({len(value)} items, nested too deeply)"
    if isinstance(value, Mapping):
        kept = {
            short(str(key), longest): harmless(field, longest, items, depth - 1)
            for key, field in list(value.items())[:items]
        }
        return kept if len(value) <= items else kept | {"...": f"({len(value) - items} more)"}
    if isinstance(value, list | tuple):
        shown = [harmless(item, longest, items, depth - 1) for item in value[:items]]
        return shown if len(value) <= items else [*shown, f"({len(value) - items} more)"]
    return value


def short(text: str, longest: int = LONGEST) -> str:
    """A text on one line, cut with the number of characters not shown."""
    safe = printable(text)
    return safe if len(safe) <= longest else f"{safe[:longest]}... ({len(safe) - longest} more characters)"


def figure(value: float) -> float | int | str:
    """A number with seven digits; integers stay integers, and "nan", "inf" and "-inf" are strings."""
    if not math.isfinite(value):
        return str(value)
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def fitted(answer: Answer, lists: Sequence[str], most: int = MOST) -> Answer:
    """The answer with its lists cut at the end until it fits; the lists named first are cut first.

    `cut` counts the items not shown, per list.
    """
    shortened, gone = dict(answer), dict(answer.get("cut") or {})
    for name in lists:
        if _size(shortened, gone) <= most:
            break
        keep = _room(shortened, name, gone, most)
        gone[name] = gone.get(name, 0) + len(shortened[name]) - keep
        shortened[name] = shortened[name][:keep]
    return shortened | {"cut": gone}


def _room(answer: Answer, name: str, gone: Mapping[str, int], most: int) -> int:
    """The number of items of a list that fit."""
    items = answer[name]
    return largest(len(items), lambda count: _size(answer | {name: items[:count]}, gone) <= most)


def page(items: list[Any], offset: int, total: int, wrap: Callable[[list[Any]], Answer], most: int = MOST) -> Answer:
    """As many items as fit, starting at `offset`, and the offset of the next page; null at the end."""

    def fits(count: int) -> bool:
        return len(dumps(wrap(items[:count]) | {"next_offset": 10**9})) <= most

    keep = max(min(1, len(items)), largest(len(items), fits))
    return wrap(items[:keep]) | {"next_offset": offset + keep if offset + keep < total else None}


def _size(answer: Answer, gone: Mapping[str, int]) -> int:
    """The length of the answer; the counts of cut items may still grow by one."""
    return len(dumps(answer | {"cut": {**gone, "consequences": 10**6}}))


def largest(count: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `count` that fits, 0 if none does."""
    if fits(count):
        return count
    low, high = 0, count
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
