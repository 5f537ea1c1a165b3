"""What an event says, as a line and as a few lines of plain text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from steadyrun.forwarding.tracker_names import plain
from steadyrun.records import Event

FINDINGS = frozenset(
    {"fault", "warning", "verdict", "incident", "note", "preflight", "rollback", "out-of-memory", "crash", "stopped"}
)
_MOST = 20  # events in one message
_CALLS = re.compile(r"(@|<(?=[!@#])|\](?=\())")  # what calls people in chats, or hides where a link leads


def headline(event: Event) -> str:
    """What it is and where, such as "fault D1.3 first-bad at step 298"."""
    fields = event.fields
    parts = [event.kind]
    if event.kind in {"fault", "warning"}:
        parts += [_word(fields, "code"), _word(fields, "outcome")]
    elif event.kind in {"verdict", "preflight"}:
        parts += [_word(fields, "verdict"), _word(fields, "headline")]
    elif event.kind == "incident":
        parts += [_word(fields, "cause")]
    where = "" if event.step is None else f" at step {event.step}"
    return " ".join(part for part in parts if part) + where


def sentence(event: Event) -> str:
    """The event in one line: headline, what was found, what to do."""
    said = _word(event.fields, "message") or _word(event.fields, "why")
    fix = _word(event.fields, "fix")
    return plain(headline(event) + (f": {said}" if said else "") + (f" Fix: {fix}" if fix else ""))


def message(root: Path, events: list[Event], left_out: int) -> tuple[str, str]:
    """Title and text of an alert, faults first."""
    events = sorted(events, key=lambda event: event.kind != "fault")
    others = len(events) + left_out - 1
    more = f" (and {others} more)" if others else ""
    title = plain(f"steadyrun: {_calm(headline(events[0]))}{more} in {root.name}", 200)
    lines = [line for event in events[:_MOST] for line in _lines(root, event)]
    rest = left_out + max(0, len(events) - _MOST)
    counted = [f"{rest} more: see the run's events.", ""] if rest else []
    return title, "\n".join([*lines, *counted, f"Run: {plain(root)}", f"Look: steadyrun check {plain(root)}"])


def _lines(root: Path, event: Event) -> list[str]:
    fields = event.fields
    lines = [_calm(plain(headline(event)))]
    lines += [_calm(text) for text in (_word(fields, "message"), _word(fields, "why")) if text]
    if fix := _word(fields, "fix"):
        lines.append(f"Fix: {_calm(fix)}")
    if event.kind == "incident" and (path := _word(fields, "path")):
        lines.append(f"Incident: {plain(root / path)}")
        lines.append(f"Again: steadyrun replay {plain(root)}" if fields.get("replayable") else "It cannot be replayed.")
    return [*lines, ""]


def _word(fields: Any, name: str) -> str:
    value = fields.get(name)
    return "" if value is None else plain(value)


def _calm(text: str) -> str:
    """Text that calls nobody in a chat: an invisible character stands where @channel and the like begin."""
    return _CALLS.sub("\\1\u2060", text)
