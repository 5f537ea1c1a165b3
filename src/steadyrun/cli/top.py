"""`steadyrun top`: show the seven panels and the verdict in a terminal."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from steadyrun.cli import follow
from steadyrun.cli.messages import as_typed, fail, no_run, say
from steadyrun.errors import RunDirectoryError, SteadyrunError
from steadyrun.store.layout import ENDED

if TYPE_CHECKING:
    from steadyrun.live.followed_run import Watch
    from steadyrun.panels.panel import Board


_PAUSE = 3.0  # times the duration of an update to wait before the next one


def top(
    run: Annotated[str, typer.Argument(help="The run directory.")],
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two updates.")] = 0.5,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for a run to start.")] = 60.0,
) -> None:
    """Show the seven panels of a run and its verdict live in the terminal.

    \b
    Examples:
      steadyrun top experiments/healthy
      steadyrun top experiments/healthy --once

    It follows the run until it ends and keeps the last frame on the screen.
    It works over ssh; 80 columns and 24 rows show everything, a smaller
    screen shows less. A ! in the first row of a plot is a non-finite value;
    a mark on a step axis is a finding. Press q or Ctrl-C to exit. If stdout
    is not a terminal, it prints one frame.

    \b
    Exit codes: 0 shown, 2 bad input or no readable run, 130 stopped with
    Ctrl-C.
    """
    console = Console(highlight=False)
    try:
        live = console.is_terminal and not once
        if live:
            follow.until_begun(run, interval, wait)
        watch = _watch(run)
        board = _follow(watch, console, interval) if live else _first(watch)
        _print(console, board)
    except RunDirectoryError as problem:
        no_run(problem, "top", run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} top --help")
    except KeyboardInterrupt:
        say("stopped with Ctrl-C")
        raise typer.Exit(130) from None


def _watch(run: str) -> Watch:
    from steadyrun.live.followed_run import Watch
    from steadyrun.report import limits
    from steadyrun.store.reader import open_run

    return Watch(open_run(run).root, run, limits.changes({}, Path.cwd()))


def _first(watch: Watch) -> Board:
    board = watch.look()
    assert board is not None, "the first update is always new"
    return board


def _follow(watch: Watch, console: Console, interval: float) -> Board:
    """Show the run until it ends or q is pressed; return the last board."""
    board = _first(watch)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as screen:
        while True:
            screen.update(_frame(console, board, "q exits"), refresh=True)
            began = time.monotonic()
            new = watch.look()
            board = new or board
            if new is None and watch.state in ENDED:
                return board
            if "q" in pressed(max(interval, _PAUSE * (time.monotonic() - began))).lower():
                return board


def _frame(console: Console, board: Board, keys: str = "") -> Group:
    from steadyrun.cli.top_frame import Screen, frame

    plain = not (console.encoding or "").lower().startswith("utf")
    return Group(*frame(board, Screen(console.size.width, console.size.height, plain, keys)))


def _print(console: Console, board: Board) -> None:
    for line in _frame(console, board).renderables:
        console.print(line, soft_wrap=True)


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """A function that waits for a key up to a number of seconds; without a keyboard it only waits."""
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _no_key
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield _key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(seconds: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return ""
    # Not through sys.stdin: `select` does not see what it buffers.
    return os.read(sys.stdin.fileno(), 64).decode("ascii", "replace") or _no_key(seconds)


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""
