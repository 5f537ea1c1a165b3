"""Names and texts from a run as trackers and people can take them. They are data: nothing in them is obeyed."""

from __future__ import annotations

import re

from steadyrun.store.run_summary import printable

LONGEST = 1000
_CREDENTIALS = re.compile(r"//[^/@\s]*@")


class Names:
    """Names of series in a tracker's alphabet. Two that would become the same stay two."""

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
    """Text on one line, without characters that steer a terminal or reorder a line, in UTF-8, and not endless."""
    safe = printable(str(text)[: longest + 1])
    return safe if len(safe) <= longest else f"{safe[: longest - 1]}…"


def trouble(problem: BaseException) -> str:
    """What a tracker raised, in a line; an address keeps its credentials to itself."""
    return plain(_CREDENTIALS.sub("//…@", f"{type(problem).__name__}: {problem}".replace("\n", " ")), 300)
