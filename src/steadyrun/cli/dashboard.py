"""`steadyrun dashboard`: the seven panels of a run and its verdict as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steadyrun.cli.messages import as_typed, fail, no_run, out, say
from steadyrun.errors import RunDirectoryError, SteadyrunError, UsageError

if TYPE_CHECKING:
    from steadyrun.panels.panel import Board
    from steadyrun.trees.walker import Changes


def dashboard(
    run: Annotated[str, typer.Argument(help="The run directory.")],
    to: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file to write. Default: RUN/dashboard.html.")
    ] = None,
    panel: Annotated[int | None, typer.Option(min=1, max=7, help="Show only this panel and the verdict.")] = None,
    png: Annotated[
        bool,
        typer.Option(
            "--png",
            help="Write an image of all seven panels; the default if FILE ends in .png. Needs steadyrun\\[png].",
        ),
    ] = False,
    dark: Annotated[bool, typer.Option("--dark", help="With --png: on a dark ground.")] = False,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=NUMBER", help="Change a threshold, such as C3.1.high=8; repeatable."),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Write the seven panels of a run and its verdict to one HTML file.

    \b
    Examples:
      steadyrun dashboard experiments/healthy --open
      steadyrun dashboard experiments/bad-init --panel 5
      steadyrun dashboard experiments/bad-init --png --dark --out bad-init.png

    The file works offline, without a server. It shows every series with its
    extremes and marks every finding; click a finding to zoom all panels to
    it. It works on finished, crashed, killed and running runs. The path of
    the file is printed on stdout.

    \b
    Exit codes: 0 written, 2 bad input or no readable run.
    """
    from steadyrun.report import limits

    try:
        png = png or (to is not None and to.suffix.lower() == ".png")
        target = _place(Path(run).expanduser(), to, png)
        board = _board(run, limits.changes(limits.parsed(assignments or []), Path.cwd()))
        _write(board, target, panel, png, dark)
    except RunDirectoryError as problem:
        no_run(problem, "dashboard", run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} dashboard --help")
    out(f"{to or target}\n")
    if browse and not _opened(target):
        say(f"could not start a browser; open {target} yourself")


def _place(run: Path, to: Path | None, png: bool) -> Path:
    """The file to write; only an earlier dashboard is ever replaced."""
    if to is None:
        return run / ("dashboard.png" if png else "dashboard.html")
    target = to.expanduser().resolve()
    if target.exists() and not target.is_file():
        raise UsageError(f"--out {to} is not a file; give the name of a file to write")
    if not target.parent.is_dir():
        raise UsageError(f"the folder of --out {to} does not exist; create it first")
    inside = target.is_relative_to(run.resolve()) and target.name not in {"dashboard.html", "dashboard.png"}
    if inside and (target.exists() or target.parent != run.resolve()):
        raise UsageError(f"--out {to} belongs to the run itself; choose another name")
    return target


def _board(run: str, changes: Changes) -> Board:
    from steadyrun.panels.board import board_of

    return board_of(run, changes)


def _write(board: Board, target: Path, panel: int | None, png: bool, dark: bool) -> None:
    if png:
        from steadyrun.panels.image import save

        save(board, target, panel, dark)
        return
    from steadyrun.panels.dashboard_page import page
    from steadyrun.store.jsonio import replace_file

    replace_file(target, page(board, panel))


def _opened(target: Path) -> bool:
    import webbrowser

    return webbrowser.open(target.absolute().as_uri())
