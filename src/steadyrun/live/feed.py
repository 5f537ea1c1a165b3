"""A stream of events for any number of readers; a reader that falls behind gets a refresh."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

REFRESH = "refresh"
_MOST = 200  # events
_LARGEST = 16_000_000  # characters of all of them


@dataclass(frozen=True)
class FeedEvent:
    """One event; a reconnecting reader sends the `id` of the last event it has seen."""

    id: str
    kind: str
    data: str


class Feed:
    """The last events, numbered. Readers keep only a number, so a slow reader costs no memory."""

    def __init__(self, most: int = _MOST, largest: int = _LARGEST) -> None:
        self._epoch = secrets.token_hex(4)  # invalidates the numbers of an earlier server
        self._events: deque[FeedEvent] = deque()
        self._last = 0
        self._size = 0
        self._most, self._largest = most, largest
        self._news = asyncio.Event()
        self._closed = False
        self.readers = 0

    @property
    def position(self) -> str:
        """The id of the last event."""
        return f"{self._epoch}.{self._last}"

    def publish(self, kind: str, data: str) -> None:
        """Add an event, and drop the oldest."""
        self._last += 1
        self._events.append(FeedEvent(self.position, kind, data))
        self._size += len(data)
        while self._events and (len(self._events) > self._most or self._size > self._largest):
            self._size -= len(self._events.popleft().data)
        self._wake()

    def close(self) -> None:
        """End all readers."""
        self._closed = True
        self._wake()

    async def follow(self, since: str) -> AsyncIterator[FeedEvent]:
        """Every event after the id `since`; a refresh if some are gone or the id is unknown."""
        self.readers += 1
        try:
            last_read = self._number(since)
            while not self._closed:
                news = self._news
                for event in self._after(last_read):
                    yield event
                    last_read = self._number(event.id)
                if last_read == self._last:
                    await news.wait()
        finally:
            self.readers -= 1

    def _after(self, last_read: int) -> list[FeedEvent]:
        missed = self._last - last_read
        if missed > len(self._events) or missed < 0:
            return [FeedEvent(self.position, REFRESH, "{}")]
        return list(self._events)[len(self._events) - missed :]

    def _number(self, event: str) -> int:
        epoch, _, number = event.partition(".")
        return int(number) if epoch == self._epoch and number.isdecimal() and len(number) < 19 else -1

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
