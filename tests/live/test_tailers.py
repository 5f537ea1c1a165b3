"""One follower per run, however many watch it; none when nobody does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from loops import run_alone

import steadyrun
from steadyrun.errors import RunDirectoryError
from steadyrun.live.feed import Feed
from steadyrun.live.followed_run import Watch
from steadyrun.live.subscriptions import PollPace, Tailers
from steadyrun.live.threads import Workers

FAST = PollPace(look=0.01, ended=0.01, linger=0.05)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with steadyrun.record(tmp_path / "run") as run:
        run.log(loss=1.0)
    return tmp_path / "run"


def story(root: Path, play: Any) -> None:
    async def main() -> None:
        tailers = Tailers(Workers(2), FAST)
        started: list[Watch] = []

        def start() -> Watch:
            started.append(Watch(root, "run"))
            return started[-1]

        await asyncio.wait_for(play(tailers, start, started), 300)
        tailers.close()

    run_alone(main)


async def gone(tailers: Tailers) -> None:
    while len(tailers):
        await asyncio.sleep(0.01)


def test_all_who_watch_share_one_follower_until_the_last_has_left(root: Path) -> None:
    async def play(tailers: Tailers, start: Any, started: list[Watch]) -> None:
        async with tailers.watching("run", start) as one, tailers.watching("run", start) as other:
            assert one is other
            assert one.whole() is other.whole()
            looks: list[object] = []
            look = started[0].look
            started[0].look = lambda: looks.append(look()) or looks[-1]  # type: ignore[method-assign,assignment]
            while len(looks) < 5:
                await asyncio.sleep(0.01)
            assert len(tailers) == len(started) == 1
        await gone(tailers)
        async with tailers.watching("run", start) as again:
            assert again is not one
            assert again.feed.position != one.feed.position

    story(root, play)


def test_a_reader_that_is_cut_off_leaves_nothing_behind(root: Path) -> None:
    async def play(tailers: Tailers, start: Any, started: list[Watch]) -> None:
        async def read() -> None:
            async with tailers.watching("run", start) as tailer:
                feeds.append(tailer.feed)
                async for _ in tailer.feed.follow(tailer.feed.position):
                    pass

        feeds: list[Feed] = []
        readers = [asyncio.create_task(read()) for _ in range(10)]
        while not feeds or feeds[0].readers < len(readers):
            await asyncio.sleep(0.01)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await gone(tailers)

    story(root, play)


def test_what_cannot_be_read_is_an_error_each_time(root: Path) -> None:
    def broken() -> Watch:
        watch = Watch(root, "run")
        watch.look = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        return watch

    async def play(tailers: Tailers, start: Any, started: list[Watch]) -> None:
        for _ in range(2):
            with pytest.raises(RunDirectoryError, match="division by zero"):
                async with tailers.watching("run", broken):
                    pass
            await gone(tailers)

    story(root, play)


def test_a_walk_is_not_repeated_at_every_look(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadyrun.live import followed_run

    real, walks = followed_run.reported, []
    monkeypatch.setattr(
        followed_run, "reported", lambda *given, **options: (walks.append(1), real(*given, **options))[1]
    )
    run = steadyrun.record(root.parent / "live", flush_steps=1)
    run.log(loss=1.0)
    watch = Watch(root.parent / "live", "live")
    watch.look()
    for step in range(1, 20):
        run.log(loss=1.0)
        board = watch.look()
        assert board is not None
        assert board.standing == f"running, last step {step}"
    assert len(walks) == 1
    run.close()
    watch.look()  # a run that has ended is walked at once
    assert len(walks) == 2


def test_a_long_rest_does_not_keep_what_nobody_watches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        tailers = Tailers(Workers(1), PollPace(look=3600, ended=3600, linger=0.05))
        async with tailers.watching("run", lambda: Watch(root, "run")):
            pass
        await asyncio.wait_for(gone(tailers), 300)

    run_alone(main)
