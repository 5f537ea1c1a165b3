"""A stream of events: everyone gets everything, or is told to begin again; nobody costs memory."""

import asyncio
from collections.abc import Awaitable, Callable

from loops import run_alone

from steadyrun.live.feed import Feed, FeedEvent


def run(story: Callable[[Feed], Awaitable[None]], **bounds: int) -> None:
    async def main() -> None:
        await asyncio.wait_for(story(Feed(**bounds)), 300)

    run_alone(main)


async def take(feed: Feed, since: str, count: int) -> list[FeedEvent]:
    events = []
    stream = feed.follow(since)
    async for event in stream:
        events.append(event)
        if len(events) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return events


def test_every_reader_gets_every_event_after_the_one_it_has_seen() -> None:
    async def story(feed: Feed) -> None:
        start = feed.position
        readers = [asyncio.create_task(take(feed, start, 5)) for _ in range(3)]
        for number in range(5):
            await asyncio.sleep(0)
            feed.publish("patch", str(number))
        for reader in readers:
            assert [event.data for event in await reader] == ["0", "1", "2", "3", "4"]
        second = (await take(feed, start, 2))[-1]
        assert [event.data for event in await take(feed, second.id, 3)] == ["2", "3", "4"]
        assert feed.readers == 0

    run(story)


def test_a_reader_that_is_too_far_behind_begins_again() -> None:
    async def story(feed: Feed) -> None:
        start = feed.position
        for number in range(10):
            feed.publish("patch", str(number))
        (event,) = await take(feed, start, 1)
        assert (event.kind, event.id) == ("refresh", feed.position)
        assert len(feed._events) == 3
        feed.publish("patch", "10")
        assert [missed.data for missed in await take(feed, event.id, 1)] == ["10"]

    run(story, most=3)


def test_large_events_do_not_pile_up() -> None:
    async def story(feed: Feed) -> None:
        start = feed.position
        for _ in range(20):
            feed.publish("patch", "x" * 400)
        assert sum(len(event.data) for event in feed._events) <= 1000
        assert (await take(feed, start, 1))[0].kind == "refresh"

    run(story, largest=1000)


def test_ids_that_are_not_ours_begin_again() -> None:
    async def story(feed: Feed) -> None:
        feed.publish("patch", "0")
        epoch = feed.position.partition(".")[0]
        for since in ("", "1", "abc.1", f"{epoch}.", f"{epoch}.-1", f"{epoch}.9", f"{epoch}.{'9' * 40}", "\0.²"):
            assert (await take(feed, since, 1))[0].kind == "refresh", since

    run(story)


def test_closing_ends_all_readers() -> None:
    async def story(feed: Feed) -> None:
        reader = asyncio.create_task(take(feed, feed.position, 1))
        while feed.readers != 1:
            await asyncio.sleep(0)
        feed.close()
        assert await reader == []
        assert feed.readers == 0

    run(story)
