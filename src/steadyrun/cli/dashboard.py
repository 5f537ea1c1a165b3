"""`steadyrun dashboard`: the seven panels of a run and its verdict as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steadyrun.cli.messages import as_typed, fail, out, say
from steadyrun.cli.runs import no_run
from steadyrun.errors import RunDirectoryError, SteadyrunError

if TYPE_CHECKING:
    from steadyrun.panels.model import Board
    from steadyrun.trees.walker import Changes


def dashboard(
    run: Annotated[str, typer.Argument(help="The run directory.")],
    to: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write; without it, RUN/dashboard.html.")
    ] = None,
    panel: Annotated[int | None, typer.Option(min=1, max=7, help="Only this panel, beside the verdict.")] = None,
    png: Annotated[
        bool, typer.Option("--png", help="An image of all seven panels instead; needs the extra steadyrun[png].")
    ] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=NUMBER", help="Change a threshold, such as C3.1.high=8; repeatable."),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Write the seven panels of a run, and its verdict, as one HTML file.

    The file needs nothing else: no network, no server. It shows every
    series with its extremes, marks what the walk found, and zooms all
    panels to a finding that is clicked. Works on finished, crashed, killed
    and running runs. The path of the file is printed on stdout.

    \b
    Examples:
      steadyrun dashboard experiments/healthy --open
      steadyrun dashboard experiments/bad-init --panel 5
      steadyrun dashboard experiments/bad-init --png --out bad-init.png

    \b
    Exit codes: 0 written, 2 bad input or no readable run.
    """
    from steadyrun.report import thresholds

    try:
        board = _board(run, thresholds.changes(thresholds.parsed(assignments or []), Path.cwd()))
        target = to or Path(run).expanduser() / ("dashboard.png" if png else "dashboard.html")
        _write(board, target, panel, png)
    except RunDirectoryError as problem:
        no_run(problem, "dashboard", run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} dashboard --help")
    out(f"{target}\n")
    if browse and not _opened(target):
        say(f"no browser could be started; open {target} by hand")


def _board(run: str, changes: Changes) -> Board:
    from steadyrun.panels.board import board_of

    return board_of(run, changes)


def _write(board: Board, target: Path, panel: int | None, png: bool) -> None:
    if png:
        from steadyrun.panels.image import save

        save(board, target, panel)
        return
    from steadyrun.panels.page import page
    from steadyrun.store.jsonio import replace_file

    replace_file(target, page(board, panel))


def _opened(target: Path) -> bool:
    import webbrowser

    return webbrowser.open(target.absolute().as_uri())
