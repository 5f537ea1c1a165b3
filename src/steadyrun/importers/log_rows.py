"""What a format hands over: rows under the names of the log, and what the log says about itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from steadyrun.errors import LogError

# What was odd about a log: counted while it is read, reported once at the end, never silently mended.


@dataclass
class Oddity:
    """One kind of thing that was odd, how often, and where first."""

    what: str
    done: str
    count: int = 0
    first: str = ""

    def __str__(self) -> str:
        where = f" (first: {self.first})" if self.first else ""
        return (
            f"{self.count:,} times: {self.what}{where}: {self.done}"
            if self.count > 1
            else f"{self.what}{where}: {self.done}"
        )


@dataclass
class Anomalies:
    """Collects oddities, and passes on how far reading has come."""

    progress: Callable[[int], None] = lambda _bytes: None
    oddities: dict[str, Oddity] = field(default_factory=dict)

    def note(self, what: str, done: str, where: str = "", count: int = 1) -> None:
        """`what` was met (at `where`) and `done` was done about it."""
        known = self.oddities.setdefault(what, Oddity(what, done))
        if not known.count:
            known.first = where
        known.count += count

    def lines(self) -> list[str]:
        return [str(oddity) for oddity in self.oddities.values()]


Row = Mapping[str, float]
"""What one line says: names as the log has them, numbers; what is not there is missing."""

PACK = 8_192
_CELLS = 2**20  # of a pack: rows times names
WIDEST = 5_000  # columns: more do not look like a log, and a column costs memory
MOST_ROWS = 100_000_000  # a file may be small and hold billions of equal rows
LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class LogRows:
    """Rows of a log in the order of the log: one float64 array per name, null if a row has nothing."""

    count: int
    columns: Mapping[str, pa.Array]


@dataclass
class Log:
    """One run as a format reads it. `rows` may be read once; the rest may be known only after that."""

    rows: Iterator[LogRows]
    config: dict[str, Any] = field(default_factory=dict)  # hyperparameters as the log has them; kept, not interpreted
    declared: dict[str, Any] = field(default_factory=dict)  # intent in our own names, if the format is sure
    roles: dict[str, str] = field(default_factory=dict)  # role: name, if the format knows better than the table
    kind: str = ""  # what the loss is: "mean since the last point", "mean of an epoch"…
    note: str = ""
    failure: dict[str, Any] = field(default_factory=dict)  # the exception that ended the program, if one did


@dataclass(frozen=True)
class FileSample:
    """A file as detection sees it: its first bytes, and some of its text."""

    path: Path
    head: bytes

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class SourceRun:
    """One run within a source that may hold several, such as a database; `key` is the format's own.

    A run without a name is called as its file is.
    """

    name: str
    key: str = ""


@dataclass(frozen=True)
class Format:
    """One kind of log. `detect` must be sure: of two formats that say yes the first in the table is taken."""

    name: str
    title: str
    detect: Callable[[FileSample], bool]
    read: Callable[[Path, str, Anomalies], Log]  # path, key of the part, where oddities go
    parts: Callable[[Path], list[SourceRun]] | None = None  # the runs in a source; None if a source is one run
    folder: Callable[[Path], bool] | None = None  # whether a whole folder is one source of this format
    extra: str = ""  # of steadyrun, if the tracker's own reader is needed
    take: Callable[[Path, list[str], list[str]], list[SourceRun]] | None = None
    """Runs that several files of a folder are: what belongs to them is taken out of its lists of folders and files."""
    alone: bool = False  # beside other logs it is not a run: it may be the error output of one of them


def packed(rows: Iterable[Row]) -> Iterator[LogRows]:
    """Single rows, in packs of some thousands."""
    names: set[str] = set()
    pack: list[Row] = []
    for row in rows:
        pack.append(row)
        names.update(row)
        if len(names) > WIDEST:
            raise LogError(
                f"more than {WIDEST:,} different names, so it does not look like a training log. Export the metrics "
                "alone, as CSV or JSON lines."
            )
        if len(pack) >= PACK or len(pack) * len(names) > _CELLS:
            yield _pack(pack)
            pack = []
    if pack:
        yield _pack(pack)


def _pack(pack: list[Row]) -> LogRows:
    names = dict.fromkeys(name for row in pack for name in row)
    columns = {name: pa.array([row.get(name) for row in pack], pa.float64(), from_pandas=False) for name in names}
    return LogRows(len(pack), columns)
