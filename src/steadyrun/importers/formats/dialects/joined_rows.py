"""Rows that a program printed one behind the other, without an end of line between them."""

from __future__ import annotations

import re

_FIRST = re.compile(
    r"^\s*+(?P<name>[\[({|>*#\"'-]{0,4}(?:global[ _])?(?:epoch|ep|step|iter|iteration|episode|update|batch)s?[\"']?"
    r"[ :=\[(#-]{1,4})\d++(?: ?/ ?\d++)?(?P<behind>[^\d\n]{0,60})",
    re.I,
)
"""The count in front of a row, and the name behind it."""


def separate(line: str) -> list[str]:
    """The rows of a line: it holds several if the count in front comes again, with the same name behind it."""
    first = _FIRST.match(line)
    if first is None or line.find(first["name"], first.end("name")) < 0 or not re.search(r"[^\W\d_]", first["behind"]):
        return [line]
    again = re.compile(rf"{re.escape(first['name'])}(?=\d++(?: ?/ ?\d++)?{re.escape(first['behind'])})")
    starts = [found.start() for found in again.finditer(line)]
    return [line[start:end] for start, end in zip(starts, [*starts[1:], len(line)], strict=True)]
