"""The writing side of a run directory: one `RunWriter` per process, one process per rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from steadyrun.errors import RunDirectoryError
from steadyrun.store.compaction import compact
from steadyrun.store.events import EventLog
from steadyrun.store.layout import MANIFEST, claim_attempt, claim_file, events_file, metrics_folder, remove_stale
from steadyrun.store.manifest import read_manifest, write_manifest
from steadyrun.store.table import Table


class RunWriter:
    """Tables, events and manifest of one rank of one attempt.

    Opening raises a clear error when the directory cannot be written. Afterwards a disk that refuses is
    reported once through `on_problem(what, error)` and recording goes on with what it can.
    """

    def __init__(self, root: Path, rank: int = 0, on_problem: Callable[[str, Exception], None] | None = None) -> None:
        self.root = root
        self.rank = rank
        self.manifest: dict[str, Any] = {}
        self.clean: Callable[[Any], Any] = _as_it_is  # what takes secrets out of all that is told
        self._on_problem = on_problem or _ignore
        self._lock = threading.RLock()
        self._tables: dict[str, Table] = {}
        self._folder = metrics_folder(root, rank)
        self._events_file = events_file(root, rank)
        self._given_up = False  # another run has begun in this place
        try:
            self.attempt = claim_attempt(root, rank)
            self._events = EventLog(self._events_file)
            remove_stale(root, rank)
        except OSError as problem:
            raise RunDirectoryError(
                f"cannot write to {root}: {problem}. Choose a folder you may write to."
            ) from problem

    def define(self, table: str, columns: Iterable[str]) -> None:
        """Name the columns of a table ahead of its rows."""
        with self._lock:
            self._tables.setdefault(table, Table(self._folder, table, self.attempt, columns))

    def append(self, table: str, step: int, values: Mapping[str, float | None], at: float) -> None:
        """Add a row to a table."""
        with self._lock:
            self._table(table).append(step, at, values)

    def write(self, table: str, steps: Any, times: Any, columns: Mapping[str, Any]) -> None:
        """Write many rows at once: arrays of one length, null where a value is missing."""
        with self._lock:
            rows = self._table(table)
            self._try(f"table {table}", lambda: rows.write(steps, times, columns))

    def merge(self, table: str, step: int, values: Mapping[str, float | None], at: float) -> None:
        """Add values to the row of this step, or a row where there is none or it has such values already."""
        with self._lock:
            self._table(table).merge(step, at, values)

    def event(self, kind: str, step: int | None = None, **fields: Any) -> None:
        """Append one event at once."""
        with self._lock:
            self._restore()
            if self._given_up:
                return
            self._try("the event log", lambda: self._events.write(kind, step, time.time(), self.clean(fields)))

    def save_manifest(self, **changes: Any) -> None:
        """Merge `changes` into the manifest and replace the file; rank 0 alone writes it."""
        with self._lock:
            self._restore()
            self.manifest.update(self.clean(changes))
            if self.rank == 0 and not self._given_up:
                self._try("the manifest", lambda: write_manifest(self.root, self.manifest))

    def flush(self) -> None:
        """Write every pending row."""
        with self._lock:
            self._restore()
            if self._given_up:
                return
            for table in self._tables.values():
                self._try(f"table {table.name}", table.flush)

    def close(self) -> None:
        """Write what is pending, end the segments and compact them to Parquet."""
        with self._lock:
            self.flush()
            if self._given_up:
                return
            lost = {name: table.lost_rows for name, table in self._tables.items() if table.lost_rows}
            if lost:
                self.event("rows-lost", rows=lost, why="the disk refused them for too long, or had no form for them")
            for table in self._tables.values():
                self._try(f"table {table.name}", table.close)
            self._try("compaction", self._compact)

    # -- the run directory, or a part of it, was deleted while the run goes on --------------------------

    def _restore(self) -> None:
        if not self._given_up:  # a file system that fails may raise where it is asked whether a file exists
            self._try("the run directory", lambda: self._begin_again() if self._files_deleted() else None)

    def _files_deleted(self) -> bool:
        known = [claim_file(self._folder, self.attempt)]
        if self.rank == 0 and self.manifest:
            known.append(self.root / MANIFEST)
        deleted = self._events.deleted or not all(map(Path.exists, known))
        return deleted or any(table.files_deleted for table in self._tables.values())

    def _begin_again(self) -> None:
        """Create what is missing, so that later rows are kept, and say what is gone."""
        if self._is_anothers():
            self._given_up = True
            raise RunDirectoryError(
                f"its files were deleted, and another run has begun in {self.root}: this one is recorded no further. "
                "Give every run a folder of its own."
            )
        whole = not self._events.deleted
        self._folder.mkdir(parents=True, exist_ok=True)
        claim_file(self._folder, self.attempt).touch()
        self._events = EventLog(self._events_file)
        rows = {name: lost for name, table in self._tables.items() if (lost := table.forget_deleted())}
        if self.rank == 0 and self.manifest:
            write_manifest(self.root, self.manifest)
        if whole and not rows:
            return
        gone = ([f"{sum(rows.values())} rows"] if rows else []) + ([] if whole else ["the events so far"])
        why = f"files in {self.root} were deleted or moved while the run was recording: {' and '.join(gone)} are gone"
        self._events.write("rows-lost", None, time.time(), self.clean({"rows": rows, "why": why}))
        raise RunDirectoryError(f"{why}. What comes is kept; leave the folder alone until the run has ended.")

    def _is_anothers(self) -> bool:
        """Whether the manifest is that of another process, which began after ours was deleted."""
        try:
            return self.rank == 0 and bool(read_manifest(self.root).get("process") != self.manifest.get("process"))
        except RunDirectoryError:  # there is none, or a damaged one
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


def _as_it_is(fields: Any) -> Any:
    return fields


def _ignore(_what: str, _problem: Exception) -> None:
    return None
