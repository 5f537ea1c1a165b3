"""How probes speak of several things at once."""

from __future__ import annotations


def counted(count: int, word: str) -> str:
    """A number and what it counts."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
