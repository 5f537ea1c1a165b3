"""The writing side of a run directory: one `RunWriter` per process, one process per rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from steadyrun.errors import RunDirectoryError
from steadyrun.store.compaction import compact
from steadyrun.store.events import EventLog
from steadyrun.store.jsonio import encoded
from steadyrun.store.layout import (
    MANIFEST,
    ManifestText,
    claim_attempt,
    claim_file,
    events_file,
    metrics_folder,
    read_manifest,
    remove_stale,
    segment_name,
)
from steadyrun.store.segment import STEP, TIME, SegmentWriter

# The rows of one table before they are written; columns may be added.


SEGMENT_BYTES = 64 * 2**20
PENDING_ROWS = 20_000
_NO_FORM = (ValueError, TypeError, OverflowError)  # what Arrow raises for a value that its column cannot store


def column_name(name: str) -> str:
    """The column name of a series: valid UTF-8, and different from the fixed columns."""
    plain = encoded(name).decode()
    return f"logged/{plain}" if plain in {STEP, TIME} else plain


class Table:
    """Buffers rows and writes them as record batches, one segment file after another.

    A step costs one Python list; the conversion to columns happens once per flush. If a flush fails, the rows
    are kept for a retry, up to `PENDING_ROWS`; then the oldest are dropped and counted in `lost_rows`.
    """

    def __init__(self, folder: Path, name: str, attempt: int, columns: Iterable[str] = ()) -> None:
        self.name = name
        self.lost_rows = 0
        self._folder = folder
        self._attempt = attempt
        self._part = 0
        self._index = {column: index for index, column in enumerate(columns)}
        self._steps: list[int] = []
        self._times: list[float] = []
        self._rows: list[list[float | None]] = []
        self._segment: SegmentWriter | None = None
        self._closed: dict[Path, int] = {}  # the earlier segments and their numbers of rows

    def __len__(self) -> int:
        return len(self._rows)

    def append(self, step: int, time: float, values: Mapping[str, float | None]) -> None:
        """Add a row; a new name becomes a new column."""
        index = self._index
        row: list[float | None] = [None] * len(index)
        try:
            for name, value in values.items():
                row[index[name]] = value
        except KeyError:
            row = self._widened(values)
        self._steps.append(step)
        self._times.append(time)
        self._rows.append(row)

    def merge(self, step: int, time: float, values: Mapping[str, float | None]) -> None:
        """Add values to the last row if it has the same step and none of them; else add a row."""
        if not self._rows or self._steps[-1] != step:
            return self.append(step, time, values)
        last = self._rows[-1]
        indices = [self._index.get(name) for name in values]
        if any(index is not None and index < len(last) and last[index] is not None for index in indices):
            return self.append(step, time, values)
        new = self._widened(values)
        old = last + [None] * (len(new) - len(last))
        self._rows[-1] = [was if now is None else now for was, now in zip(old, new, strict=True)]
        return None

    def flush(self) -> None:
        """Write the pending rows as one batch; they stay pending if that fails."""
        if not self._rows:
            return
        width = len(self._index)
        rows = [row if len(row) == width else row + [None] * (width - len(row)) for row in self._rows]
        columns: list[Sequence[float | None]] = [self._steps, self._times, *zip(*rows, strict=True)]
        try:
            self._segment_for(tuple(column_name(name) for name in self._index)).write(columns)
        except Exception as problem:
            if isinstance(problem, _NO_FORM) and self._drop_unwritable():
                self.flush()
            else:
                self._give_up_segment()
                self._trim()
            raise
        self._steps, self._times, self._rows = [], [], []

    def write(self, steps: Any, times: Any, columns: Mapping[str, Any]) -> None:
        """Write many rows as one batch after the pending ones, from Arrow or numpy arrays of equal length."""
        self.flush()
        for name in columns:
            self._index.setdefault(name, len(self._index))
        filled = [columns[name] if name in columns else pa.nulls(len(steps), pa.float64()) for name in self._index]
        try:
            self._segment_for(tuple(column_name(name) for name in self._index)).write([steps, times, *filled])
        except Exception:
            self._give_up_segment()
            self.lost_rows += len(steps)
            raise

    def close(self) -> None:
        """Close the last segment. From now on the files may be compacted, so their absence is not reported."""
        self._end_segment()
        self._closed.clear()

    def _end_segment(self) -> None:
        if self._segment is not None:
            self._closed[self._segment.path] = self._segment.rows
            self._segment.close()
            self._segment = None

    @property
    def files_deleted(self) -> bool:
        """Whether a file with rows of this table has disappeared."""
        return (self._segment is not None and self._segment.deleted) or not all(map(Path.exists, self._closed))

    def forget_deleted(self) -> int:
        """Forget deleted files, so that the next rows get a new one; return the number of lost rows."""
        gone = [path for path in self._closed if not path.exists()]
        lost = sum(self._closed.pop(path) for path in gone)
        if self._segment is not None and self._segment.deleted:
            lost += self._segment.rows
            self._give_up_segment()
        return lost

    def _widened(self, values: Mapping[str, float | None]) -> list[float | None]:
        for name in values:
            self._index.setdefault(name, len(self._index))
        row: list[float | None] = [None] * len(self._index)
        for name, value in values.items():
            row[self._index[name]] = value
        return row

    def _segment_for(self, columns: tuple[str, ...]) -> SegmentWriter:
        current = self._segment
        if current is not None and current.columns == columns and current.size < SEGMENT_BYTES:
            return current
        self._end_segment()
        path = self._folder / segment_name(self.name, self._attempt, self._part)
        self._part += 1
        self._segment = SegmentWriter(path, columns)
        return self._segment

    def _give_up_segment(self) -> None:
        if self._segment is not None:
            self._segment.abandon()
            self._segment = None

    def _drop_unwritable(self) -> int:
        """Drop only the rows that no column can store; return their number."""
        kept = [index for index in range(len(self._rows)) if self._writable(index)]
        dropped = len(self._rows) - len(kept)
        self._steps = [self._steps[index] for index in kept]
        self._times = [self._times[index] for index in kept]
        self._rows = [self._rows[index] for index in kept]
        self.lost_rows += dropped
        return dropped

    def _writable(self, index: int) -> bool:
        try:
            pa.array([self._steps[index]], pa.int64())
            pa.array([self._times[index], *self._rows[index]], pa.float64())
        except _NO_FORM:
            return False
        return True

    def _trim(self) -> None:
        surplus = len(self._rows) - PENDING_ROWS
        if surplus > 0:
            del self._steps[:surplus], self._times[:surplus], self._rows[:surplus]
            self.lost_rows += surplus


class RunWriter:
    """Tables, events and manifest of one rank of one attempt.

    Opening raises an error if the directory is not writable. Later a failing disk is reported once through
    `on_problem(what, error)`, and recording continues as far as possible.
    """

    def __init__(self, root: Path, rank: int = 0, on_problem: Callable[[str, Exception], None] | None = None) -> None:
        self.root = root
        self.rank = rank
        self.manifest: dict[str, Any] = {}
        self.clean: Callable[[Any], Any] = _as_it_is  # removes secrets from everything that is stored
        self._on_problem = on_problem or _ignore
        self._lock = threading.RLock()
        self._tables: dict[str, Table] = {}
        self._folder = metrics_folder(root, rank)
        self._events_file = events_file(root, rank)
        self._given_up = False  # another run has started in this folder
        self._manifest_text, self._manifest_lock = ManifestText(), threading.Lock()
        self._soon = _Soon(self._write_manifest, lambda problem: self._on_problem("the manifest", problem))
        try:
            self.attempt = claim_attempt(root, rank)
            self._events = EventLog(self._events_file)
            remove_stale(root, rank)
        except OSError as problem:
            raise RunDirectoryError(f"cannot write to {root}: {problem}. Choose a writable folder.") from problem

    @property
    def given_up(self) -> bool:
        """Whether another run has started in this folder, so that nothing more is written."""
        return self._given_up

    def define(self, table: str, columns: Iterable[str]) -> None:
        """Declare the columns of a table before its rows."""
        with self._lock:
            self._tables.setdefault(table, Table(self._folder, table, self.attempt, columns))

    def append(self, table: str, step: int, values: Mapping[str, float | None], at: float) -> None:
        """Add a row to a table."""
        with self._lock:
            self._table(table).append(step, at, values)

    def write(self, table: str, steps: Any, times: Any, columns: Mapping[str, Any]) -> None:
        """Write many rows at once: arrays of equal length, null for missing values."""
        with self._lock:
            rows = self._table(table)
            self._try(f"table {table}", lambda: rows.write(steps, times, columns))

    def merge(self, table: str, step: int, values: Mapping[str, float | None], at: float) -> None:
        """Add values to the row of this step; add a row if there is none or it already has them."""
        with self._lock:
            self._table(table).merge(step, at, values)

    def event(self, kind: str, step: int | None = None, **fields: Any) -> None:
        """Append one event immediately."""
        with self._lock:
            self._restore()
            if self._given_up:
                return
            self._try("the event log", lambda: self._events.write(kind, step, time.time(), self.clean(fields)))

    def save_manifest(self, **changes: Any) -> None:
        """Merge `changes` into the manifest and replace the file; only rank 0 writes it."""
        with self._lock:
            self._restore()
            self.manifest.update(self.clean(changes))
            if self.rank == 0 and not self._given_up:
                self._try("the manifest", self._write_manifest)

    def save_manifest_soon(self, **changes: Any) -> None:
        """Update the manifest during training, if anything changes, in a thread that nobody waits for."""
        with self._lock:
            self._restore()
            changes = self.clean(changes)
            if all(name in self.manifest and self.manifest[name] == value for name, value in changes.items()):
                return
            self.manifest.update(changes)
            if self.rank == 0 and not self._given_up:
                self._soon.ask()

    def flush(self) -> None:
        """Write every pending row."""
        with self._lock:
            self._restore()
            if self._given_up:
                return
            for table in self._tables.values():
                self._try(f"table {table.name}", table.flush)

    def close(self) -> None:
        """Write pending rows, close the segments and compact them to Parquet."""
        self._soon.wait()
        with self._lock:
            self.flush()
            if self._given_up:
                return
            lost = {name: table.lost_rows for name, table in self._tables.items() if table.lost_rows}
            if lost:
                self.event(
                    "rows-lost", rows=lost, why="the disk failed for too long, or the values have no storable form"
                )
            for table in self._tables.values():
                self._try(f"table {table.name}", table.close)
            self._try("compaction", self._compact)

    # -- the run directory, or a part of it, was deleted during the run ---------------------------------

    def _restore(self) -> None:
        if not self._given_up:  # a failing file system may raise even when checking whether a file exists
            self._try("the run directory", lambda: self._begin_again() if self._files_deleted() else None)

    def _files_deleted(self) -> bool:
        known = [claim_file(self._folder, self.attempt)]
        if self.rank == 0 and self.manifest:
            known.append(self.root / MANIFEST)
        deleted = self._events.deleted or not all(map(Path.exists, known))
        return deleted or any(table.files_deleted for table in self._tables.values())

    def _begin_again(self) -> None:
        """Recreate what is missing, so that later rows are stored, and report what is gone."""
        if self._is_anothers():
            self._given_up = True
            raise RunDirectoryError(
                f"its files were deleted, and another run has started in {self.root}: recording of this run stops. "
                "Give every run its own folder."
            )
        whole = not self._events.deleted
        self._folder.mkdir(parents=True, exist_ok=True)
        claim_file(self._folder, self.attempt).touch()
        self._events = EventLog(self._events_file)
        rows = {name: lost for name, table in self._tables.items() if (lost := table.forget_deleted())}
        if self.rank == 0 and self.manifest:
            self._write_manifest()
        if whole and not rows:
            return
        gone = ([f"{sum(rows.values())} rows"] if rows else []) + ([] if whole else ["the events so far"])
        why = f"files in {self.root} were deleted or moved during the run: {' and '.join(gone)} are lost"
        self._events.write("rows-lost", None, time.time(), self.clean({"rows": rows, "why": why}))
        raise RunDirectoryError(f"{why}. Recording continues; do not change the folder until the run has ended.")

    def _write_manifest(self) -> None:
        with self._manifest_lock:
            self._manifest_text.write(self.root, dict(self.manifest))

    def _is_anothers(self) -> bool:
        """Whether the manifest belongs to another process, which started after ours was deleted."""
        try:
            return self.rank == 0 and bool(read_manifest(self.root).get("process") != self.manifest.get("process"))
        except RunDirectoryError:  # missing or damaged
            return False

    def _compact(self) -> None:
        for drop in compact(self._folder, self.attempt):
            self.event("dropped", file=drop.file, size=drop.size, unit=drop.unit, why=drop.reason)

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self.define(name, ())
        return self._tables[name]

    def _try(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as problem:
            self._on_problem(what, problem)


class _Soon:
    """Runs one function in a temporary thread: once for all requests that arrive meanwhile."""

    def __init__(self, action: Callable[[], None], failed: Callable[[Exception], None]) -> None:
        self._action, self._failed = action, failed
        self._lock = threading.Lock()
        self._asked = False
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        with self._lock:
            self._asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="steadyrun-manifest", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Wait until all requests are done."""
        if (thread := self._thread) is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._thread = None
                    return
                self._asked = False
            try:
                self._action()
            except Exception as problem:
                self._failed(problem)


def _as_it_is(fields: Any) -> Any:
    return fields


def _ignore(_what: str, _problem: Exception) -> None:
    return None
