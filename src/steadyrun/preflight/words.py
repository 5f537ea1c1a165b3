"""How probes speak of several things at once."""

from __future__ import annotations

from collections.abc import Sequence

_SHOWN = 3


def listed(names: Sequence[str]) -> str:
    """A few of the names, and how many more there are."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def counted(count: int, word: str) -> str:
    """A number and what it counts."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
