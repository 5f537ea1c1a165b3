"""What the commands say: messages on stderr, data on stdout."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from steadyrun.store.run_summary import printable


def stderr() -> Console:
    """A console for messages. Made anew each time, so that a redirected stderr is seen."""
    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """One message, printed as it is: what looks like markup in a name, or moves the cursor, is only shown."""
    stderr().print(Text(_lines(message)), soft_wrap=True)


def fail(problem: str, remedy: str) -> NoReturn:
    """One error, what to do about it, and exit code 2."""
    message = Text.assemble(("error: ", "bold red"), _lines(problem), "\n  ", _lines(remedy))
    stderr().print(message, soft_wrap=True)
    raise typer.Exit(2)


def out(data: str) -> None:
    """Data on stdout, whatever its encoding; a reader that has left, as `head` does, changes no exit code."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(data.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def as_typed(name: str) -> str:
    """How the reader starts a program of this environment: by its name if the shell finds it, else by its path."""
    program = Path(sys.executable).with_name(name)
    in_path = shutil.which(name)
    if not program.exists() or (in_path is not None and Path(in_path).absolute() == program):
        return name
    short = os.path.relpath(program)
    return shlex.quote(str(program) if short.startswith("..") else short)


def _lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
