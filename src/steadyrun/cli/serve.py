"""`steadyrun serve`: show the runs under a folder live in a browser."""

from __future__ import annotations

import ipaddress
import os
import secrets
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from steadyrun.cli.messages import as_typed, fail, out, say
from steadyrun.errors import SteadyrunError

_LEAST = 8  # characters of a token


def serve(
    root: Annotated[
        Path | None,
        typer.Argument(help="The folder with the runs. Default: experiments if it exists, else the current folder."),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; a token protects any but a loopback address.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 chooses a free one.")] = 8410,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="STEADYRUN_TOKEN", help="Require this token on every request; generated if needed and not given."
        ),
    ] = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the list of runs in a browser.")] = False,
) -> None:
    """Show the runs under a folder live in a browser.

    \b
    Examples:
      steadyrun serve
      steadyrun serve experiments --open
      steadyrun serve runs --host 0.0.0.0 --port 0

    It shows a list of all runs (state, last step, loss, verdict), a live page
    per run with the seven panels and the verdict, and a page that compares
    runs. It only reads the runs. The address is printed on stdout; press
    Ctrl-C to stop. Prometheus metrics are under /metrics.

    On a remote machine, keep the default host and forward the port:
    ssh -L 8410:localhost:8410 MACHINE

    \b
    Exit codes: 2 bad input or port taken, 130 stopped with Ctrl-C.
    """
    folder = folder_of(root)
    token = _token(token, host)
    from steadyrun.live import server
    from steadyrun.report import limits

    try:
        changes = limits.changes({}, Path.cwd())
        listening = server.bound(host, port)
    except SteadyrunError as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} serve --help")
    address = _address(host, listening.getsockname()[1], token)

    def started() -> None:
        say(f"serving the runs under {folder}{'; press Ctrl-C to stop' if _hears_ctrl_c() else ''}")
        out(f"{address}\n")
        if browse and not _opened(address):
            say("could not start a browser; open the address yourself")

    try:
        server.serve(folder, listening, host, token, changes, started)
    except KeyboardInterrupt:
        say("stopped with Ctrl-C")
        raise typer.Exit(130) from None


def folder_of(root: Path | None) -> Path:
    """The given folder with the runs, or the default."""
    folder = (root or (Path("experiments") if Path("experiments").is_dir() else Path())).expanduser()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        fail(f"{folder} {what}", "give the folder that contains the runs, such as experiments")
    return folder


def _token(given: str | None, host: str) -> str | None:
    if given is not None and (len(given) < _LEAST or not given.isascii() or not given.isprintable() or " " in given):
        fail(f"--token needs at least {_LEAST} ASCII characters without spaces", "leave it out to generate one")
    return given or (None if _is_own(host) else secrets.token_urlsafe(24))


def _is_own(host: str) -> bool:
    """Whether the address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(host: str, port: int, token: str | None) -> str:
    """The address to open; a wildcard address is shown as the machine's name."""
    import socket

    name = socket.gethostname() if host in {"0.0.0.0", "::"} else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}/" + (f"?token={quote(token, safe='')}" if token else "")


def _opened(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def _hears_ctrl_c() -> bool:
    """Not if `steadyrun run --watch` started it in a session of its own: there it ends with the script."""
    return os.getsid(0) != os.getpid() or sys.stdin.isatty()
