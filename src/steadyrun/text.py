"""Numbers and lists of names as messages print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_READABLE = 100
_SHOWN = 3  # of a list of names


def shown(value: Any) -> str:
    """A number as messages print it."""
    return f"{value:.4g}"


def percent(share: float) -> str:
    """A share as messages print it; beyond a hundredfold in powers of ten."""
    return f"{share:.1%}" if abs(share) < _READABLE else f"{share * 100:.3g}%"


def fine_percent(share: float) -> str:
    """A share with three digits that count, however small it is."""
    return f"{100 * share:.3g}%"


def listed(names: Sequence[str], total: int | None = None) -> str:
    """A few of the names, and how many more there are."""
    more = (len(names) if total is None else total) - _SHOWN
    few = ", ".join(names[:_SHOWN])
    return f"{few} and {more} more" if more > 0 else few


def counted(count: int, word: str) -> str:
    """A number and what it counts."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
