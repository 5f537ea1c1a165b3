"""How a program ended, as its output shows it: the exception of the last traceback, or what the system printed."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from steadyrun.importers.formats.dialects.dialect import Dialect, Lines
from steadyrun.importers.log_rows import Anomalies, Log, Row

_TRACEBACK = "Traceback (most recent call last)"
_IGNORED = "Exception ignored in"  # while an object is collected or the program shuts down
_KILLED = re.compile(  # what a shell, the C++ runtime and Slurm print
    r"^(?:(?P<shell>\S{1,200}: line \d++:\s++\d++ )|)"
    r"(?P<signal>Segmentation fault|Killed|Aborted|Bus error|Illegal instruction|Floating point exception)"
    r"(?: \(core dumped\))?+(?(shell)\b|\s*+$)"
    r"|^terminate called after throwing an instance of '(?P<thrown>[^']++)'"
    r"|^(?P<trace>stack traceback|Stacktrace|Execution halted):?\s*+$"  # Lua, Julia, R
    r"|^slurmstepd: error: (?=[^\n]{0,200}?(?:(?P<limit>DUE TO TIME LIMIT)|(?P<memory>oom[-_]kill|Out Of Memory)))"
)
_LANGUAGES = {"stack traceback": "LuaError", "Stacktrace": "JuliaError", "Execution halted": "RError"}
_RAISED = re.compile(
    r"^(?P<type>(?:\w{1,80}\.){0,12}(?=[A-Z_]\w{0,80}?[a-z])\w{1,80})(?: \([^()]{0,80}\))?(?::\s*+(?P<message>.*+))?$"
)
_FRAME = re.compile(r'^\s*+File "(?P<file>[^"]++)", line (?P<line>\d++)(?:, in (?P<function>.++))?$')
_WRAPPERS = frozenset({"ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException"})
_LONGEST = 500  # lines of a traceback, and characters of a message, as in a recorded run
_MOST_FRAMES = 12
_GOES_ON = 3  # lines of results below a traceback: the program has caught the exception and goes on


@dataclass
class ProgramEnd:
    """Watches the lines of a program for the exception that ends it."""

    result: re.Pattern[str]  # finds a line of results
    failure: dict[str, Any] = field(default_factory=dict)  # as the manifest of a recorded run has it
    _prefix: str | None = None  # what stands in front of every line of the traceback that is being read
    _frames: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_FRAMES))
    _lines: int = 0  # of this traceback
    _ignored: bool = False  # Python says that it ignores the exception of the traceback that comes next
    _results: int = 0  # below the last exception

    def watched(self, lines: Lines) -> Lines:
        """The same lines."""
        for number, line in lines:
            self._look(line)
            yield number, line

    def _look(self, line: str) -> None:
        at = line.find(_TRACEBACK)
        if at >= 0 and self._ignored:
            self._ignored = False
        elif _IGNORED in line:
            self._ignored = True
        elif at >= 0:
            before = line[:at]
            self._prefix = before if not before.strip() or before.rstrip()[-1] in ":|])>-" else ""
            self._frames.clear()
            self._lines = 0
        elif self._prefix is not None:
            self._traceback(line.removeprefix(self._prefix))
        elif match := _KILLED.match(line):
            kind = (
                match["thrown"]
                or match["signal"]
                or _LANGUAGES.get(match["trace"])
                or ("TimeLimit" if match["limit"] else "OutOfMemory")
            )
            self._ended(kind, further=bool(match["signal"] or match["trace"]))
        elif self.failure and not line.startswith("wandb:") and self.result.search(line):
            self._results += 1
            if self._results >= _GOES_ON:
                self.failure = {}

    def _traceback(self, line: str) -> None:
        self._lines += 1
        if match := _FRAME.match(line):
            name = match["file"].replace("\\", "/").rpartition("/")[2]
            self._frames.append(f"{name}:{match['line']} in {match['function'] or '?'}")
        elif line[:1].strip() and (match := _RAISED.match(line)):
            kind = match["type"].rpartition(".")[2]
            self._ended(kind, match["message"] or "", list(self._frames), further=kind in _WRAPPERS)
            self._prefix = None
        elif self._lines > _LONGEST:
            self._prefix = None

    def _ended(self, kind: str, message: str = "", frames: list[str] | None = None, further: bool = False) -> None:
        """An end of the program; a further one is what its launcher or the system made of the end before."""
        if further and self.failure:
            return
        self.failure = {"type": kind, "message": message[:_LONGEST], "traceback": frames or []}
        self._results = 0


# A program that ended before it printed any result: no rows, only how it ended.


def _rows(lines: Lines, _anomalies: Anomalies, _log: Log) -> Iterator[Row]:
    deque(lines, maxlen=0)
    yield from ()


def _sure(lines: list[str]) -> bool:
    end = ProgramEnd(re.compile(r"(?!)"))
    deque(end.watched(enumerate(lines)), maxlen=0)
    return bool(end.failure)


DIALECT = Dialect(
    "crash",
    "output that ends in an exception before the first result",
    re.compile(rf"{re.escape(_TRACEBACK)}|{_KILLED.pattern}"),
    _rows,
    sure=_sure,
    last_resort=True,
    rowless=True,
)
