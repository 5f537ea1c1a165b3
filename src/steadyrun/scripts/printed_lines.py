"""Lines out of pieces of text, however they are cut: each with the step at which its last word was printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_TRACEBACK = "Traceback (most recent call last)"
_ENDS = re.compile(r"\r\n|\r|\n")
LONGEST_LINE = 20_000  # characters: what comes after them was not printed for people


class LineSplitter:
    """Splits one stream. A progress bar that is drawn again after `\\r` is a line each time it is drawn."""

    def __init__(self) -> None:
        self._rest = ""
        self._step = 0
        self._drawn = False  # the last end of a line was "\r"
        self.redraws = False  # the line that was given last is one of several that are drawn over each other

    def lines(self, text: str, step: int) -> Iterator[tuple[str, int]]:
        """The lines that `text` completes; a `\\r` at its end waits, since `\\n` may follow."""
        waiting = self._rest + text
        start, before = 0, len(self._rest.removesuffix("\r"))
        for end in _ENDS.finditer(waiting):
            if end[0] == "\r" and end.end() == len(waiting):
                break
            drawn, self._drawn = self._drawn, end[0] == "\r"
            self.redraws = drawn or self._drawn
            yield waiting[start : end.start()][:LONGEST_LINE], self._step if end.start() <= before else step
            start = end.end()
        rest = waiting[start:]
        if len(rest.removesuffix("\r")) > max(0, before - start):
            self._step = step
        self._rest = rest if len(rest) <= LONGEST_LINE else rest[:LONGEST_LINE] + ("\r" if rest[-1] == "\r" else "")

    def ended(self) -> Iterator[tuple[str, int]]:
        """What is left when nothing more comes."""
        rest, self._rest = self._rest.removesuffix("\r"), ""
        if rest:
            yield rest[:LONGEST_LINE], self._step


class Tracebacks:
    """Recognises tracebacks in a stream of lines: the lines of source in them report no numbers."""

    def __init__(self) -> None:
        self._inside = False

    def hold(self, line: str) -> bool:
        """Whether a line belongs to a traceback; the message of the exception is its last."""
        if _TRACEBACK in line:
            self._inside = True
            return True
        inside, self._inside = self._inside, self._inside and (not line.strip() or line[0].isspace())
        return inside


class Redrawn:
    """Leaves out what a progress bar shows again: a value that has not changed since it was last drawn is not new."""

    def __init__(self) -> None:
        self._shown: dict[str, float] = {}

    def new(self, values: Mapping[str, float], redraws: bool) -> dict[str, float]:
        """The values that are new; all of them on a line of its own."""
        if not redraws:
            self._shown.clear()
            return dict(values)
        fresh = {name: value for name, value in values.items() if self._shown.get(name) != value}
        self._shown.update(fresh)
        return fresh
