"""What a training program printed: one format per dialect, chosen by how many lines each can read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import binary, decoded, lines, plain
from steadyrun.importers.formats.dialects import DIALECTS, Dialect
from steadyrun.importers.formats.dialects.dialect import Lines
from steadyrun.importers.formats.dialects.joined_rows import separate
from steadyrun.importers.formats.dialects.printed_values import plain_values
from steadyrun.importers.formats.dialects.program_end import ProgramEnd
from steadyrun.importers.formats.dialects.table_heads import plain_tables
from steadyrun.importers.log_rows import Anomalies, FileSample, Format, Log, Row, packed

_SAMPLE = 4 * 2**20  # of the beginning: some programs print their own source first
_TAIL = 2**19
_LONGEST = 4_000
_LONGEST_READ = 20_000  # of a line; what comes after it was not printed for people
_STRAY = 0.02  # of the lines with losses: as few may look like another program's by chance


def best(sample: FileSample) -> Dialect | None:
    """The dialect that reads most lines of a file; the general one if no other reads more than stray lines."""
    if binary(sample.head):
        return None
    about = sample.path.stat()
    return _best(sample.path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1)
def _best(path: Path, _size: int, _changed: int) -> Dialect | None:
    """Kept, for every dialect asks it of the same file."""
    lines = _plain_lines(path)
    counts = {dialect.name: sum(len(dialect.pattern.findall(line)) for line in lines) for dialect in DIALECTS}
    lines_of_losses = max(counts[dialect.name] for dialect in DIALECTS if dialect.last_resort)
    special = [
        dialect for dialect in DIALECTS if not dialect.last_resort and counts[dialect.name] > _STRAY * lines_of_losses
    ]
    ordered = sorted(special, key=lambda dialect: -counts[dialect.name])
    general = [dialect for dialect in DIALECTS if dialect.last_resort and counts[dialect.name]]
    ordered += sorted(general, key=lambda dialect: -counts[dialect.name])
    return next((dialect for dialect in ordered if dialect.sure(lines)), None)


def _plain_lines(path: Path) -> list[str]:
    """Lines for a first look: plain, none longer than a person would print, none empty."""
    text = decoded(_sample(path))
    lines = plain(text.replace("\r\n", "\n").replace("\r", "\n")).split("\n")
    return [row[:_LONGEST] for _, row in _printed_rows(enumerate(lines), path)]


def _printed_rows(lines: Lines, path: Path) -> Lines:
    """What a program printed, row by row: several may stand in a line, and one value in several lines."""
    filled = ((number, line) for number, line in lines if line)
    return ((number, row) for number, line in plain_tables(plain_values(filled, path)) for row in separate(line))


def _sample(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
        if size > _SAMPLE + _TAIL:
            file.seek(-_TAIL, 2)
            start += b"\n" + file.read()
    return start


def _detect(name: str, sample: FileSample) -> bool:
    dialect = best(sample)
    return dialect is not None and dialect.name == name


def _read(dialect: Dialect, path: Path, _key: str, anomalies: Anomalies) -> Log:
    log = Log(iter(()), kind=dialect.kind, roles=dict(dialect.roles))
    log.rows = packed(_checked(dialect, path, anomalies, log))
    return log


def _checked(dialect: Dialect, path: Path, anomalies: Anomalies, log: Log) -> Iterator[Row]:
    any_row = False
    end = ProgramEnd(dialect.pattern)
    printed = _printed_rows(end.watched(lines(path, anomalies)), path)
    for row in dialect.rows(((number, row[:_LONGEST_READ]) for number, row in printed), anomalies, log):
        any_row = True
        yield row
    log.failure = end.failure
    if not any_row and not end.failure:
        raise LogError(f"{path}: no line reads as {dialect.title}.")


FORMATS = tuple(
    Format(dialect.name, dialect.title, partial(_detect, dialect.name), partial(_read, dialect), alone=dialect.rowless)
    for dialect in DIALECTS
)
