"""The user's program within a command: its command line and its output."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from steadyrun.cli.messages import as_typed, fail, no_run, say
from steadyrun.errors import RunDirectoryError, SteadyrunError, UsageError


class TakesProgram(TyperCommand):
    """A command that takes a factory. The arguments after `--` belong to the factory's script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        ctx.meta["arguments"] = args[end + 1 :]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- SCRIPT_ARGUMENTS]"]


def script_arguments(context: typer.Context) -> list[str]:
    """The arguments after `--`."""
    return list(context.meta["arguments"])


@contextmanager
def as_script(factory: str | None, arguments: list[str]) -> Iterator[None]:
    """Give the user's program its own command line, and send what it prints to stderr."""
    before = sys.argv
    sys.argv = [(factory or "").rpartition(":")[0], *arguments]  # worker processes copy it
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv = before


@contextmanager
def program_errors(command: str, run: str = "") -> Iterator[None]:
    """Turn errors of a command that runs the user's program into one message with the next step."""
    try:
        yield
    except RunDirectoryError as problem:
        no_run(problem, command, run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} {command} --help")
    except KeyboardInterrupt:
        say("stopped with Ctrl-C")
        raise typer.Exit(130) from None


def require_torch(why: str, *more: str) -> None:
    """Fail with the install command if torch is missing; `why` is what the command does with it."""
    for name in ("torch", *more):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            fail(f"{why} and needs {name}, which is not installed", 'pip install "steadyrun[torch]"')


def config_of(given: str) -> dict[str, Any]:
    """A config from JSON or a JSON file."""
    text, where = given, "--config"
    if not given.lstrip().startswith("{"):
        path = Path(given).expanduser()
        if not path.is_file():
            raise UsageError(f"--config must be a JSON object or the path of a JSON file; {given!r} does not exist")
        text, where = path.read_text(encoding="utf-8", errors="replace"), str(path)
    try:
        config = json.loads(text)
    except ValueError as problem:
        raise UsageError(f"{where} is not valid JSON: {problem}") from problem
    if not isinstance(config, dict):
        raise UsageError(f"{where} must be a JSON object, not {type(config).__name__}")
    return config
