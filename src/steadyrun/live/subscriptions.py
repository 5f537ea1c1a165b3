"""One follower per run, shared by all readers, and released when there are none."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from steadyrun.errors import RunDirectoryError, SteadyrunError
from steadyrun.live import page_patches
from steadyrun.live.feed import Feed
from steadyrun.live.followed_run import Watch
from steadyrun.live.threads import Workers
from steadyrun.panels.panel import Board
from steadyrun.report.phrases import one_line
from steadyrun.store.layout import ENDED

log = logging.getLogger("steadyrun.live")


@dataclass(frozen=True)
class PollPace:
    """The seconds between looks, and how long a run is followed after the last reader has left."""

    look: float = 0.4
    ended: float = 1.5
    share: float = 3.0  # factor on the duration of a look to wait before the next
    linger: float = 20.0


class Tailer:
    """Looks at one run repeatedly, and publishes the changes."""

    def __init__(self, watch: Watch, workers: Workers, pace: PollPace) -> None:
        self.watch = watch
        self.feed = Feed()
        self._workers, self._pace = workers, pace
        self._users = 0
        self._left = time.monotonic()
        self._ready: asyncio.Event = asyncio.Event()
        self._failure: Exception | None = None
        self._now: page_patches.Shown | None = None
        self._whole: tuple[str, str] | None = None
        self.board: Board | None = None

    def enter(self) -> None:
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        self._left = time.monotonic()

    async def ready(self) -> Board:
        """The dashboard after the first look; the error if it failed."""
        await self._ready.wait()
        if self.board is None:
            raise RunDirectoryError(str(self._failure)) from self._failure
        return self.board

    def whole(self) -> str:
        """The current content as JSON with the event id to follow from; made once for all readers."""
        assert self._now is not None, "wait until ready"
        position = self.feed.position
        if self._whole is None or self._whole[0] != position:
            self._whole = position, page_patches.dumps(page_patches.whole(self._now) | {"id": position})
        return self._whole[1]

    async def follow(self) -> None:
        """Look until there are no readers."""
        while self._wanted:
            began = time.monotonic()
            await self._look()
            took = time.monotonic() - began
            if self.board is None:
                return
            least = self._pace.ended if self.watch.state in ENDED else self._pace.look
            await self._rest(max(least, self._pace.share * took))

    @property
    def _wanted(self) -> bool:
        return self._users > 0 or time.monotonic() - self._left < self._pace.linger

    async def _rest(self, seconds: float) -> None:
        """Wait for the next look, which may be far after a long one; stop waiting if there are no readers."""
        until = time.monotonic() + seconds
        while self._wanted and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 1.0))

    async def _look(self) -> None:
        try:
            update = await self._workers.do(self._update)
        except (SteadyrunError, OSError) as problem:
            self._fail(problem)
        except Exception as problem:  # one unreadable run must not stop the server
            log.exception("looking at a run failed")
            self._fail(problem)
        else:
            if update is not None:
                self._publish(*update)
        self._ready.set()

    def _update(self) -> tuple[Board, page_patches.Shown, str] | None:
        board = self.watch.look()
        if board is None:
            return None
        shown = page_patches.shown(board)
        change = "" if self._now is None else page_patches.dumps(page_patches.patch(self._now, shown))
        return board, shown, change

    def _publish(self, board: Board, shown: page_patches.Shown, change: str) -> None:
        self.board, self._now, self._failure = board, shown, None
        if change:
            self.feed.publish("patch", change)

    def _fail(self, problem: Exception) -> None:
        if str(problem) != str(self._failure):
            self.feed.publish("problem", page_patches.dumps({"message": one_line(str(problem))}))
        self._failure = problem


class Tailers:
    """The followed runs."""

    def __init__(self, workers: Workers, pace: PollPace | None = None) -> None:
        self._workers, self._pace = workers, pace or PollPace()
        self._followed: dict[str, tuple[Tailer, asyncio.Task[None]]] = {}

    def __len__(self) -> int:
        return len(self._followed)

    @asynccontextmanager
    async def watching(self, key: str, start: Callable[[], Watch]) -> AsyncIterator[Tailer]:
        """The follower of a run after its first look; started if necessary."""
        if key not in self._followed:
            tailer = Tailer(await self._workers.do(start), self._workers, self._pace)
            if key not in self._followed:
                task = asyncio.create_task(tailer.follow())
                self._followed[key] = tailer, task
                task.add_done_callback(lambda done: self._forget(key, done))
        tailer = self._followed[key][0]
        tailer.enter()
        try:
            await tailer.ready()
            yield tailer
        finally:
            tailer.leave()

    def close(self) -> None:
        """End all readers and followers."""
        for tailer, task in list(self._followed.values()):
            tailer.feed.close()
            task.cancel()

    def _forget(self, key: str, done: asyncio.Task[Any]) -> None:
        if key in self._followed and self._followed[key][1] is done:
            self._followed.pop(key)[0].feed.close()
            _give_back()


def _give_back() -> None:
    """Return the memory of a long run to the system, which Python and glibc would otherwise keep."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
