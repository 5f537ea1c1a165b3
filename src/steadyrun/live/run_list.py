"""The list of runs, updated while someone looks at it. Reading and checking happen in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from steadyrun.live import run_row as rows
from steadyrun.live.feed import Feed
from steadyrun.live.page_patches import dumps
from steadyrun.live.run_row import RunRow
from steadyrun.live.threads import Workers
from steadyrun.store.discover import Root, RunPlace
from steadyrun.store.layout import ENDED, MANIFEST
from steadyrun.store.tail import Fingerprint, fingerprint
from steadyrun.trees.walker import Changes

log = logging.getLogger("steadyrun.live")

_SCAN = 1.5  # seconds between two scans of the folder
_SLICE = 0.3  # seconds of reading between two updates of the pages
_AGAIN = 15.0  # seconds before a running run is checked again
_IDLE = 20.0  # and at least this factor on the duration of its last check
_LINGER = 20.0  # seconds
_UNREADABLE = "unreadable"
MEASURED = 200  # the newest runs, which have metrics
_FRESH = 3.0  # seconds for which metrics count as fresh
_PATIENCE = 5.0  # seconds that a request for metrics waits for newer ones


@dataclass
class _Known:
    """What is known about a run, and the state of its files then."""

    run: RunPlace
    row: RunRow
    manifest: object = None
    files: Fingerprint | None = None  # of the details
    walked: Fingerprint | None = None
    next_walk: float = 0.0

    @property
    def settled(self) -> bool:
        return self.row.state in ENDED

    def may_change(self, lacks: bool) -> bool:
        """Whether its files may have changed, or more details are needed."""
        return self.row.state != _UNREADABLE and (lacks or self.files is None or not self.settled)


class Index:
    """Scans the folder, reads changed runs, newest first, and checks runs without a recorded verdict."""

    def __init__(self, root: Root, workers: Workers, changes: Changes) -> None:
        self._root, self._workers, self._changes = root, workers, changes
        self.feed = Feed()
        self._known: dict[str, _Known] = {}
        self._told: dict[str, RunRow] = {}
        self._scanned = asyncio.Event()
        self._wanted = 0.0
        self._measuring = False  # whether metrics were requested
        self._measured_at = -math.inf
        self._measured = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def whole(self) -> str:
        """All rows as JSON, and the event id to follow from."""
        self.want()
        await self._scanned.wait()
        return dumps({"id": self.feed.position, "rows": [row.to_dict() for row in self._told.values()]})

    async def measured(self) -> tuple[list[RunRow], int]:
        """The newest runs with their figures, and the number of others. The first call starts reading them."""
        self.want()
        self._measuring = True
        if time.monotonic() - self._measured_at > _FRESH:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._measured.wait(), _PATIENCE)
        rows = [known.row for known in self._known.values()]
        return rows[:MEASURED], max(0, len(rows) - MEASURED)

    def want(self) -> None:
        """Keep the list up to date for a while, because someone looks at it."""
        self._wanted = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())

    def close(self) -> None:
        self.feed.close()
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        while self.feed.readers or time.monotonic() - self._wanted < _LINGER:
            until, measuring = time.monotonic() + _SCAN, self._measuring
            try:
                await self._workers.do(self._scan)
                self._tell()
                self._scanned.set()
                await self._read_details(measuring)
                while time.monotonic() < until and (known := self._next_to_walk()):
                    await asyncio.sleep(await self._walk(known))
            except Exception:  # one unreadable run must not stop the list
                log.exception("updating the list of runs failed")
            await asyncio.sleep(max(0.05, until - time.monotonic()))

    def _scan(self) -> None:
        """Find the runs and their states."""
        known = {run.key: _current(run, self._known.get(run.key)) for run in self._root.runs()}
        self._known = dict(sorted(known.items(), key=lambda item: -item[1].row.started))

    async def _read_details(self, measuring: bool) -> None:
        waiting = [(known, measuring and index < MEASURED) for index, known in enumerate(self._known.values())]
        while waiting:
            waiting = await self._workers.do(self._read_some, waiting)
            self._tell()
        if measuring:
            self._measured_at = time.monotonic()
            self._measured.set()
            self._measured = asyncio.Event()

    def _read_some(self, waiting: list[tuple[_Known, bool]]) -> list[tuple[_Known, bool]]:
        """Read for a short time; the rest follows later."""
        until = time.monotonic() + _SLICE
        for index, (known, measured) in enumerate(waiting):
            lacks = measured and known.row.figures is None
            if known.may_change(lacks) and ((now := fingerprint(known.run.path)) != known.files or lacks):
                _read(known, now, measured)
            if time.monotonic() > until:
                return waiting[index + 1 :]
        return []

    def _next_to_walk(self) -> _Known | None:
        now = time.monotonic()
        for known in self._known.values():
            due = known.row.state != _UNREADABLE and known.files is not None and known.walked != known.files
            if due and (known.walked is None or known.settled or now >= known.next_walk):
                return known
        return None

    async def _walk(self, known: _Known) -> float:
        """Check one run, and return the seconds to pause."""
        began = time.monotonic()
        await self._workers.do(_walk, known, self._changes)
        took = time.monotonic() - began
        known.next_walk = time.monotonic() + max(_AGAIN, _IDLE * took)
        self._tell()
        return took

    def _tell(self) -> None:
        """Publish the rows that are new, changed or gone."""
        now = {key: known.row for key, known in self._known.items()}
        changed = [row.to_dict() for key, row in now.items() if self._told.get(key) != row]
        gone = [key for key in self._told if key not in now]
        self._told = now
        if changed or gone:
            for some in _pieces(changed):
                self.feed.publish("rows", dumps({"rows": some, "gone": gone}))


def _pieces(changed: list[dict[str, object]], size: int = 100) -> Iterable[list[dict[str, object]]]:
    return [changed[start : start + size] for start in range(0, max(1, len(changed)), size)]


def _current(run: RunPlace, old: _Known | None) -> _Known:
    """The current state of a run; the manifest of an ended run is read again only if it changed."""
    try:
        status = (run.path / MANIFEST).stat()
        manifest = status.st_size, status.st_mtime_ns
        if old is not None and old.settled and old.manifest == manifest:
            return old
        row = rows.first(run)
    except Exception as problem:  # one unreadable run must not hide the others
        log.debug("reading %s failed: %s", run.name, problem)
        manifest, row = None, RunRow(run.key, run.name, _UNREADABLE)
    if old is None:
        return _Known(run, row, manifest)
    ended = row.state in ENDED and not old.settled
    files = None if ended or old.manifest != manifest else old.files
    kept = replace(old.row, state=row.state, started=row.started)
    return _Known(run, kept, manifest, files, old.walked, old.next_walk)


def _read(known: _Known, now: Fingerprint, measured: bool) -> None:
    try:
        row = rows.detailed(known.run, measured)
    except Exception as problem:
        log.warning("reading %s failed: %s", known.run.name, problem)
        known.row = replace(known.row, state=_UNREADABLE)
        return
    if row.verdict:
        known.walked = now
    else:
        last = known.row  # its verdict stays until there is a new one
        row = replace(row, verdict=last.verdict, leaf=last.leaf, finding=last.finding)
    known.row, known.files = row, now


def _walk(known: _Known, changes: Changes) -> None:
    files = known.files
    try:
        known.row = rows.walked(known.run, known.row, changes)
    except Exception as problem:
        log.warning("checking %s failed: %s", known.run.name, problem)
        known.row = replace(known.row, verdict="unreadable")
    known.walked = files
