"""Section 7: one line, and the file beside the runs that collects such lines, each once."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from steadyrun.postmortem.markdown import inline
from steadyrun.report.markdown import escape

NAME = "lessons.md"
_HEAD = "# Lessons\n\nOne line per post-mortem, written by `steadyrun postmortem`.\n\n"
_OPEN = b"- (open) "


def add(runs: Path, run: str, step: int, date: str, lesson: str) -> bool:
    """Write the lesson of one incident into `lessons.md` of a folder; whether the file changed.

    A lesson that is there stays as it is, so that a person may word it better; only a line that an earlier version
    wrote without a cause, marked `(open)`, is replaced.
    """
    path = runs / NAME
    mark = f"<!-- steadyrun {quote(run.encode('utf-8', 'backslashreplace'), safe='')} {step} -->".encode()
    line = _line(run, step, date, lesson) + b" " + mark
    lines = path.read_bytes().split(b"\n") if path.is_file() else _HEAD.encode().split(b"\n")
    at = next((place for place, each in enumerate(lines) if mark in each), None)
    if at is None:
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [b""] * (not lines or not lines[-1].startswith(b"- ")) + [line, b""]
    elif lines[at].startswith(_OPEN):
        lines[at] = line
    else:
        return False
    _replace(path, b"\n".join(lines))
    return True


def _line(run: str, step: int, date: str, lesson: str) -> bytes:
    day = f"{date}, " if date else ""
    return f"- {day}{escape(run)}, step {step}: {inline(lesson)}".encode("utf-8", "backslashreplace")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
