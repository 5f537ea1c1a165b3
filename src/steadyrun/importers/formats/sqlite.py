"""Databases of SQLite: the table that holds a log, wide, long, or with the numbers of a step as JSON in one column.

trackio keeps its projects like that: `run_name`, `step`, `timestamp`, and `metrics` as JSON. The database is opened for
reading only; one that a program has open, with a write-ahead log beside it, is read from a copy.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from steadyrun.errors import LogError
from steadyrun.importers.clean_lines import head
from steadyrun.importers.formats.jsonfile import parsed, row_of
from steadyrun.importers.formats.long_table import Points
from steadyrun.importers.formats.table_columns import (
    LongColumns,
    RunCounter,
    axis,
    long_columns,
    plain,
    run_columns,
    seconds,
)
from steadyrun.importers.log_rows import PACK, WIDEST, Anomalies, FileSample, Format, Log, Row, SourceRun, packed
from steadyrun.importers.number_text import TooLargeError, value
from steadyrun.importers.series_roles import EPOCH, STEP, TIME, rank

_MAGIC = b"SQLite format 3\0"
_SAMPLE = 200  # rows that show which columns are numbers
_CONFIG = "config"

Cells = tuple[Any, ...]


@dataclass(frozen=True)
class _Table:
    """A table with a log in it: its columns of numbers, of text and of JSON."""

    name: str
    rows: int
    columns: list[str]
    numbers: list[str]
    text: list[str]
    json: list[str]

    @property
    def long(self) -> LongColumns | None:
        return None if self.json else long_columns(self.text, self.numbers)

    @property
    def counted(self) -> bool:
        """Whether it counts steps or epochs, and has something to count by them."""
        numbers = [name for name in self.numbers if plain(name) != "id"]
        by = axis(STEP, numbers) or axis(EPOCH, numbers)
        others = [name for name in numbers if not any(rank(role, name) is not None for role in (STEP, EPOCH, TIME))]
        return by is not None and bool(self.json or others)


def _detect(sample: FileSample) -> bool:
    return sample.head.startswith(_MAGIC)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A database for reading; whatever is wrong with it is an error that names the file."""
    try:
        if head(path, len(_MAGIC)) != _MAGIC:
            raise LogError(f"{path} is not a database of SQLite.")
        folder = tempfile.TemporaryDirectory(prefix="steadyrun-sqlite-")
        with folder as copies, closing(_connected(path, Path(copies))) as database:
            database.text_factory = lambda held: held.decode("utf-8", "replace")
            yield database
    except (sqlite3.Error, UnicodeError) as problem:
        raise LogError(f"{path} cannot be read as a database of SQLite: {problem}") from problem


def _connected(path: Path, folder: Path) -> sqlite3.Connection:
    log = path.with_name(f"{path.name}-wal")
    if not log.is_file() or not log.stat().st_size:
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    shutil.copyfile(path, folder / "copy.db")
    shutil.copyfile(log, folder / "copy.db-wal")
    return sqlite3.connect(folder / "copy.db")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _best(database: sqlite3.Connection, path: Path) -> _Table:
    """The table with most rows of those that are logs."""
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = [_table(database, name) for name in names if isinstance(name, str)]
    logs = [table for table in tables if table.rows and (table.counted or table.long)]
    if not logs:
        shown = ", ".join(f"{table.name} ({', '.join(table.columns[:8])})" for table in tables[:8]) or "no table"
        raise LogError(
            f"{path}: no table of the database has steps, and numbers at them; it has {shown}. "
            "Save the table that holds the log as CSV and import that."
        )
    return max(logs, key=lambda table: table.rows)


def _table(database: sqlite3.Connection, name: str) -> _Table:
    (rows,) = database.execute(f"SELECT COUNT(*) FROM {_quoted(name)}").fetchone()
    cursor = database.execute(f"SELECT * FROM {_quoted(name)} LIMIT {_SAMPLE}")
    columns = [about[0] for about in cursor.description][:WIDEST]
    kinds: dict[str, list[str]] = {"numbers": [], "text": [], "json": [], "": []}
    for column, cells in zip(columns, zip(*cursor, strict=True), strict=False):
        kinds[_kind([cell for cell in cells if cell is not None])].append(column)
    return _Table(name, rows, columns, kinds["numbers"], kinds["text"], kinds["json"])


def _kind(cells: list[Any]) -> str:
    if not cells:
        return ""
    if all(isinstance(cell, str | bytes) and _word(cell).startswith("{") for cell in cells):
        return "json" if any(row_of(_object(cell), Anomalies()) for cell in cells) else ""
    if sum(isinstance(cell, int | float) for cell in cells) * 2 >= len(cells):
        return "numbers"
    return "text" if all(isinstance(cell, str) for cell in cells) else ""


def _object(cell: Any) -> dict[str, Any]:
    entry = parsed(_word(cell)) if isinstance(cell, str | bytes) else None
    return entry if isinstance(entry, dict) else {}


def _runs(path: Path) -> list[SourceRun]:
    """Every run of the table."""
    with _opened(path) as database:
        table = _best(database, path)
        runs = RunCounter(run_columns(table.text + table.numbers))
        if runs.columns:
            wanted = ", ".join(map(_quoted, runs.columns))
            for row in database.execute(f"SELECT {wanted} FROM {_quoted(table.name)}"):
                if not runs.add([[_word(cell)] for cell in row]):
                    break
        return runs.parts()


def _word(cell: Any) -> str:
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace").strip()
    return "" if cell is None else str(cell).strip()


def _read(path: Path, key: str, anomalies: Anomalies) -> Log:
    with _opened(path) as database:
        table = _best(database, path)
        config = _config(database, key)
        if table.long is None:
            return Log(packed(_rows(path, key, anomalies)), config=config)
        points = Points(path, anomalies)
        for cells in _packs(database, table, key):
            columns = dict(zip(table.columns, zip(*cells, strict=True), strict=False))
            points.take(table.long, len(cells), partial(_numbers, columns, anomalies), partial(_words, columns))
        log = points.log()
        log.config = config
        return log


def _config(database: sqlite3.Connection, key: str) -> dict[str, Any]:
    """What a table of settings holds of a run, if there is one: trackio's `configs`."""
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        cursor = database.execute(f"SELECT * FROM {_quoted(str(name))} LIMIT {_SAMPLE}")
        columns = [about[0] for about in cursor.description]
        runs = run_columns(columns)
        if runs and _CONFIG in columns:
            for row in cursor:
                cells = dict(zip(columns, row, strict=True))
                if _word(cells[runs[0]]) == key or not key:
                    return {name: item for name, item in _object(cells[_CONFIG]).items() if name[:1] != "_"}
    return {}


def _packs(database: sqlite3.Connection, table: _Table, key: str) -> Iterator[list[Cells]]:
    """The rows of a run in the order in which they were written, some thousands at a time."""
    run = run_columns(table.text + table.numbers)
    wanted = f"WHERE TRIM(CAST({_quoted(run[0])} AS TEXT)) = ?" if key and run else ""
    cursor = database.execute(f"SELECT * FROM {_quoted(table.name)} {wanted}", (key,) if wanted else ())
    while pack := cursor.fetchmany(PACK):
        yield pack


def _rows(path: Path, key: str, anomalies: Anomalies) -> Iterator[Row]:
    """The rows of a wide table, and of JSON in its columns."""
    with _opened(path) as database:
        table = _best(database, path)
        times = [name for name in table.text if rank(TIME, name) is not None]
        runs = run_columns(table.numbers)
        wanted = [name for name in table.numbers if plain(name) != "id" and name not in runs]
        for pack in _packs(database, table, key):
            for cells in pack:
                row = dict(zip(table.columns, cells, strict=False))
                numbers = {name: row[name] for name in wanted}
                numbers |= {name: seconds(_word(row[name])) for name in times}
                for name in table.json:
                    numbers = {**_object(row[name]), **numbers}
                if found := row_of(numbers, anomalies, f"table {table.name}"):
                    yield found


def _numbers(columns: dict[str, Cells], anomalies: Anomalies, name: str) -> pa.Array:
    numbers: list[float | None] = []
    for cell in columns[name]:
        try:
            date = seconds(cell) if isinstance(cell, str) else None
            numbers.append(value(cell) if date is None else date)
        except TooLargeError as problem:
            anomalies.note("numbers larger than any float", "left out", f"column {name!r}: {problem}")
            numbers.append(None)
    return pa.array(numbers, pa.float64())


def _words(columns: dict[str, Cells], name: str) -> list[str]:
    return [_word(cell) for cell in columns[name]]


FORMAT = Format("sqlite", "SQLite (trackio, any table of numbers)", _detect, _read, _runs)
