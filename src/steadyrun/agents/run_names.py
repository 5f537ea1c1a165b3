"""Runs by the names that agents use: relative to the root, percent-encoded unless they are plain text."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from steadyrun.agents.bounded_json import short
from steadyrun.store.discover import Root, RunPlace

# The error of a tool: a stable code, what is wrong, and what to do next. Never a traceback.


NO_RUN = "no-such-run"
NO_SERIES = "no-such-series"
NO_QUESTION = "no-such-question"
NO_TOOL = "no-such-tool"
BAD_ARGUMENT = "bad-argument"
UNREADABLE = "unreadable-run"
NOTHING = "nothing-to-tell"
NOT_WRITTEN = "not-written"
INTERNAL = "internal-error"
_LONGEST_REMEDY = 1_500  # characters: it may list the alternatives


class Problem(Exception):  # noqa: N818  an answer, not a failure of the server
    """A call that cannot be answered. What it quotes from the call is bounded."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(short(message))
        self.code, self.message, self.remedy = code, short(message), short(remedy, _LONGEST_REMEDY)

    def to_dict(self) -> dict[str, Any]:
        return {"error": self.code, "message": self.message, "next": self.remedy}


ITSELF = "."  # the root, if it is a run


def name_of(location: RunPlace) -> str:
    """The name of a run: its path below the root, percent-encoded unless it is plain text."""
    plain = os.fsdecode(unquote_to_bytes(location.key))
    return (plain if plain.isascii() and plain.isprintable() and "%" not in plain else location.key) or ITSELF


def find(root: Root, name: str) -> RunPlace:
    """The run with this name; an error if it is not a run or leads out of the root."""
    location = root.find(_path(name)) if name else None
    if location is None:
        raise Problem(NO_RUN, f"there is no run {short(name, 200)!r} below the root", _near(root, name))
    return location


def _path(name: str) -> str:
    """The path of a name; a path that no file has if it cannot be encoded."""
    try:
        return "" if name == ITSELF else os.fsdecode(unquote_to_bytes(os.fsencode(name)))
    except UnicodeError:
        return "\0"


def _near(root: Root, name: str) -> str:
    names = sorted(name_of(location) for location in root.runs())
    if not names:
        return "there are no runs below the root; record a run, or start the server with another root"
    close = difflib.get_close_matches(name[:200], names, n=3)
    meant = f"did you mean {' or '.join(quote(similar, safe='/') for similar in close)}? " if close else ""
    return f"{meant}list_runs lists the runs; names are relative to the root, without '..'"


def without(root: Path, text: str) -> str:
    """A message without the path of the root, which agents do not need."""
    return text.replace(f"{root}/", "").replace(str(root), ITSELF)
