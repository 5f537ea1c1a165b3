"""Examples of a language model's batches as text: what is learned of them and what is masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from steadyrun.program.supervision import Example, ShownText

MOST = 3  # examples of a run
_LONGEST = 4000  # characters of an example
_STYLE = "white-space:pre-wrap;font-family:ui-monospace,monospace;line-height:1.5;overflow-wrap:anywhere"
_LEARNED = "background:#2b7a4b33;border-bottom:2px solid #2b7a4b"
_MASKED = "opacity:.7"


def learned_text(manifest: Mapping[str, Any]) -> tuple[Example, ...]:
    """The examples that a run kept; a manifest is data, so anything else in their place is left out."""
    supervision = manifest.get("supervision")
    kept = supervision.get("shown") if isinstance(supervision, Mapping) else None
    if not isinstance(kept, list):
        return ()
    return tuple(example for given in kept[:MOST] if (example := _example(given)))


def _example(given: object) -> Example:
    parts: list[ShownText] = []
    room = _LONGEST
    for part in given if isinstance(given, list) else ():
        if not (isinstance(part, list) and len(part) == 3 and isinstance(part[0], str) and room > 0):
            continue
        parts.append(ShownText(part[0][:room], part[1] is True, str(part[2])[:20]))
        room -= len(part[0])
    return tuple(parts)


def marked(example: Example) -> str:
    """An example as plain text: learned stretches in double brackets."""
    text, inside = "", False
    for part in example:
        if part.learned != inside:
            text += "[[" if part.learned else "]]"
            inside = part.learned
        text += part.text
    return text + ("]]" if inside else "")


def html_examples(examples: Sequence[Example]) -> str:
    """Examples for a notebook, with a legend; "" if there are none."""
    if not examples:
        return ""
    legend = f"<div><span style='{_LEARNED}'>learned</span> <span style='{_MASKED}'>masked</span></div>"
    rows = [
        f"<p><strong>example {number}</strong></p><div style='{_STYLE}'>{_coloured(example)}</div>"
        for number, example in enumerate(examples, 1)
    ]
    return legend + "".join(rows)


def _coloured(example: Example) -> str:
    return "".join(
        f"<span style='{_LEARNED if part.learned else _MASKED}'>{escape(part.text)}</span>" for part in example
    )
