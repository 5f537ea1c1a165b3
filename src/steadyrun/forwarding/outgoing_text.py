"""Outgoing text of a run: safe names, sentences for events, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steadyrun.records import Event
from steadyrun.store.run_summary import printable

# Addresses of alerts are secrets: neither the run directory nor any output may contain them.


_SHORTEST = 6  # characters: shorter strings are not secrets, and occur anywhere


class Hidden:
    """Removes the addresses from everything that is stored."""

    def __init__(self, secrets: Sequence[Any]) -> None:
        known = [part for secret in secrets if isinstance(secret, str) for part in (secret, secret.partition("://")[2])]
        self._secrets = [re.compile(re.escape(part), re.I) for part in known if len(part) >= _SHORTEST]

    def out_of(self, value: Any) -> Any:
        """The value, with every address in its strings replaced."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            for secret in self._secrets:
                value = secret.sub("…", value)
            return value
        if isinstance(value, Mapping):
            return {self.out_of(key): self.out_of(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.out_of(item) for item in value]
        return value


def masked(address: Any) -> str:
    """An address without its secret: only the scheme before ://, if it has one."""
    scheme, separator, _ = str(address).partition("://")
    return repr(f"{plain(scheme, 20)}://…") if separator else "the given address"


# Names and texts from a run, made safe for trackers and people. They are data, never instructions.


LONGEST = 1000
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


class Names:
    """Names of series in a tracker's alphabet; different names stay different."""

    def __init__(self, forbidden: str, longest: int, prefix: str = "") -> None:
        self._forbidden, self._longest, self._prefix = re.compile(forbidden), longest, prefix
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def __call__(self, name: str) -> str:
        if name not in self._known:
            self._known[name] = self._free(self._clean(name))
            self._taken.add(self._known[name])
        return self._known[name]

    def _clean(self, name: str) -> str:
        parts = [part for part in self._forbidden.sub("_", plain(name)).split("/") if part not in {"", ".", ".."}]
        return (self._prefix + ("/".join(parts) or "unnamed"))[: self._longest]

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._taken:
            number += 1
            tail = f"-{number}"
            free = name[: self._longest - len(tail)] + tail
        return free


def plain(text: object, longest: int = LONGEST) -> str:
    """Text on one line of UTF-8 without control characters, truncated to a maximum length."""
    safe = printable(str(text)[: longest + 1])
    return safe if len(safe) <= longest else f"{safe[: longest - 1]}…"


def trouble(problem: BaseException) -> str:
    """A tracker's exception as one line, without the credentials in addresses."""
    return plain(_CREDENTIALS.sub("//…@", f"{type(problem).__name__}: {problem}".replace("\n", " ")), 300)


# An event as one line, and as a few lines of plain text.


FINDINGS = frozenset(
    {
        "fault",
        "suspect",
        "warning",
        "verdict",
        "incident",
        "note",
        "preflight",
        "rollback",
        "out-of-memory",
        "crash",
        "stopped",
    }
)
_MOST = 20  # events in one message
_CALLS = re.compile(r"(@|<(?=[!@#])|\](?=\())")  # what mentions people in chats, or hides the target of a link


def headline(event: Event) -> str:
    """The kind and step of an event, such as "fault D1.3 first-bad at step 298"."""
    fields = event.fields
    parts = [event.kind]
    if event.kind in {"fault", "suspect", "warning"}:
        parts += [_word(fields, "code"), _word(fields, "outcome")]
    elif event.kind in {"verdict", "preflight"}:
        parts += [_word(fields, "verdict"), _word(fields, "headline")]
    elif event.kind == "incident":
        parts += [_word(fields, "cause")]
    where = "" if event.step is None else f" at step {event.step}"
    return " ".join(part for part in parts if part) + where


def sentence(event: Event) -> str:
    """The event in one line: headline, finding, fix."""
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
    counted = [f"{rest} more in the run's event log.", ""] if rest else []
    return title, "\n".join([*lines, *counted, f"Run: {plain(root)}", f"Report: steadyrun check {plain(root)}"])


def _lines(root: Path, event: Event) -> list[str]:
    fields = event.fields
    lines = [_calm(plain(headline(event)))]
    lines += [_calm(text) for text in (_word(fields, "message"), _word(fields, "why")) if text]
    if fix := _word(fields, "fix"):
        lines.append(f"Fix: {_calm(fix)}")
    if event.kind == "incident" and (path := _word(fields, "path")):
        lines.append(f"Incident: {plain(root / path)}")
        lines.append(
            f"Replay: steadyrun replay {plain(root)}"
            if fields.get("replayable")
            else "This incident cannot be replayed."
        )
    return [*lines, ""]


def _word(fields: Any, name: str) -> str:
    value = fields.get(name)
    return "" if value is None else plain(value)


def _calm(text: str) -> str:
    """Text without mentions in a chat: an invisible character breaks @channel and similar."""
    return _CALLS.sub("\\1\u2060", text)
