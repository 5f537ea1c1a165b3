"""What the commands say on stderr; stdout is for data."""

from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text


def stderr() -> Console:
    """A console for messages. Made anew each time, so that a redirected stderr is seen."""
    return Console(stderr=True, highlight=False)


def say(message: str) -> None:
    """One message, printed as it is: what looks like markup in a name is not interpreted."""
    stderr().print(Text(message), soft_wrap=True)


def fail(problem: str, remedy: str) -> NoReturn:
    """One error, what to do about it, and exit code 2."""
    stderr().print(Text.assemble(("error: ", "bold red"), problem, "\n  ", remedy), soft_wrap=True)
    raise typer.Exit(2)
