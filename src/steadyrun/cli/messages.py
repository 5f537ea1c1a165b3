"""Messages on stderr, data on stdout, and suggestions for a path that is not a run."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from steadyrun.errors import RunDirectoryError
from steadyrun.store.jsonio import read_json
from steadyrun.store.run_summary import printable

# Messages on stderr, data on stdout.


def stderr() -> Console:
    """A console for messages, new each time so that it respects a redirected stderr."""
    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """Print a message literally: markup and control characters in a name are shown, not interpreted."""
    stderr().print(Text(_lines(message)), soft_wrap=True)


def fail(problem: str, remedy: str) -> NoReturn:
    """Print an error and what to do about it; exit with code 2."""
    message = Text.assemble(("error: ", "bold red"), _lines(problem), "\n  ", _lines(remedy))
    stderr().print(message, soft_wrap=True)
    raise typer.Exit(2)


def out(data: str) -> None:
    """Write data to stdout in its encoding; a closed pipe, as after `head`, does not change the exit code."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(data.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def as_typed(name: str) -> str:
    """What to type to start a program of this environment: its name if it is on PATH, else its path."""
    program = Path(sys.executable).with_name(name)
    in_path = shutil.which(name)
    if not program.exists() or (in_path is not None and Path(in_path).absolute() == program):
        return name
    short = os.path.relpath(program)
    return shlex.quote(str(program) if short.startswith("..") else short)


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


# Run directories near a path that is not a run: what the user may have meant.


_MOST_ENTRIES = 500  # of one folder: a hint must be quick


def no_run(problem: RunDirectoryError, command: str, *given: str) -> NoReturn:
    """Fail because one of the given paths is not a run, and list runs near it."""
    paths = [Path(name).expanduser() for name in given]
    wrong = next((path for path in paths if not is_run(path)), paths[-1])
    if wrong.is_file():
        fail(str(problem), f"if it is a log, import it first: {as_typed('steadyrun')} import {quote(str(wrong))}")
    near = runs_near(wrong)
    if wrong.is_dir() and not near and not (wrong / "manifest.json").exists():
        typed = f"{as_typed('steadyrun')} import {quote(str(wrong))}"
        fail(str(problem), f"if it holds logs, import them first: {typed}")
    names = ", ".join(str(path) for path in near)
    fail(str(problem), f"runs near it: {names}" if near else f"see: {as_typed('steadyrun')} {command} --help")


def is_run(path: Path) -> bool:
    """Whether a folder holds a manifest that steadyrun wrote."""
    try:
        manifest = read_json(path / "manifest.json")
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and isinstance(manifest.get("schema"), int)


def runs_near(path: Path, most: int = 4) -> list[Path]:
    """The run that contains `path`, or some runs below it; runs with similar names if it does not exist."""
    above = [parent for parent in islice(path.parents, 3) if is_run(parent)]
    if above:
        return above[:1]
    if path.is_dir():
        return list(islice(_runs_below(path), most))
    folder = next((parent for parent in path.parents if parent.is_dir()), None)
    beside = {str(run): run for run in islice(_runs_below(folder), _MOST_ENTRIES)} if folder else {}
    close = difflib.get_close_matches(str(path), beside, n=most)
    return [beside[name] for name in close] or list(beside.values())[:most]


def _runs_below(folder: Path, depth: int = 2) -> Iterator[Path]:
    for child in _folders(folder):
        if is_run(child):
            yield child
        elif depth > 1:
            yield from _runs_below(child, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in islice(folder.iterdir(), _MOST_ENTRIES) if child.is_dir())
    except OSError:
        return []
