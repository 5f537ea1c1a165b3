"""`steadyrun mcp`: serve the runs under a folder to coding agents, over the Model Context Protocol."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from steadyrun.cli.messages import fail, out, say
from steadyrun.cli.serve import folder_of

_INSTALL = "pip install 'steadyrun[mcp]'"
_LEAST = 2  # the first version whose server is built this way


def mcp(
    root: Annotated[
        Path | None,
        typer.Argument(help="The folder with the runs. Default: experiments if it exists, else the current folder."),
    ] = None,
    skill: Annotated[
        bool, typer.Option("--skill", help="Print SKILL.md, which explains the command line to an agent.")
    ] = False,
) -> None:
    """Serve the runs under a folder to a coding agent, over MCP on stdio.

    \b
    Examples:
      steadyrun mcp experiments
      steadyrun mcp --skill > .claude/skills/steadyrun/SKILL.md

    An MCP client starts this command and talks to it on stdin and stdout.
    The tools are list_runs, check, explain, series, events and postmortem.
    They reach only the given folder, answer with short JSON, and write
    nothing unless postmortem is called with write. docs/agents.md shows how
    to register the server. Needs the extra "mcp".

    \b
    Exit codes: 0 the client disconnected, 2 bad input or missing extra,
    130 stopped with Ctrl-C.
    """
    if skill:
        out(_skill())
        return
    folder = folder_of(root)
    _require_mcp()
    from steadyrun.agents.mcp_server import serve

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    # A thread waits for the next line of stdin and cannot be interrupted: exit without it.
    signal.signal(signal.SIGINT, _leave)
    say(f"serving the runs under {folder} on stdin and stdout")
    serve(folder)


def _skill() -> str:
    from importlib.resources import files

    return files("steadyrun.agents").joinpath("SKILL.md").read_text(encoding="utf-8")


def _require_mcp() -> None:
    if importlib.util.find_spec("mcp") is None:
        fail("the MCP server needs the Python package mcp", _INSTALL)
    version = importlib.metadata.version("mcp")
    if int(version.partition(".")[0]) < _LEAST:
        fail(f"the MCP server needs mcp {_LEAST} or newer; version {version} is installed", _INSTALL)


def _leave(_signal: int, _frame: Any) -> None:
    say("stopped with Ctrl-C")
    os._exit(130)
