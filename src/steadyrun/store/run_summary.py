"""A summary of a run directory in a few lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadyrun.text import shown

if TYPE_CHECKING:
    from steadyrun.store.reader import RunReader

LONGEST = 1000  # characters of one text
_PLAIN_KINDS = {"start", "validation"}


def describe(run: RunReader) -> str:
    """State, steps, losses, notes and unreadable parts."""
    names = run.names()
    lines = [f"{run.root}: {run.state}{_why(run)}", f"  {len(names)} series"]
    for name, label in (("loss", "loss"), ("val_loss", "validation loss")):
        if name in names and len(series := run.series(name)):
            first, last = series.values[0], series.values[-1]
            lines.append(
                f"  {label} {shown(first)} at step {series.steps[0]}, {shown(last)} at step {series.steps[-1]}"
            )
    for event in run.events():
        if event.kind not in _PLAIN_KINDS:
            text = event.fields.get("why") or event.fields.get("message") or ""
            lines.append(f"  {printable(event.kind)}{_at(event.step)}: {printable(str(text))}")
    lines += [f"  not read: {drop}" for drop in run.dropped]
    return "\n".join(lines)


def _why(run: RunReader) -> str:
    failure = run.manifest.get("failure")
    if not isinstance(failure, dict) or not failure:
        return ""
    return printable(f" ({failure.get('type')}: {failure.get('message')})")


def printable(text: str) -> str:
    """Text from a run directory on one line, with control characters escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Text of a run as one line without control characters, truncated to 1,000 characters."""
    safe = printable(text)
    return safe if len(safe) <= LONGEST else f"{safe[:LONGEST]}…"


def _at(step: int | None) -> str:
    return "" if step is None else f" at step {step}"
