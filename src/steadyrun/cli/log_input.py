"""A log of another tool where a run directory is asked for: imported for the time of the command."""

from __future__ import annotations

import json
import shlex
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steadyrun.cli.messages import as_typed, fail, is_run, runs_near, say
from steadyrun.errors import LogError
from steadyrun.store.layout import MANIFEST, ranks

if TYPE_CHECKING:
    from steadyrun.importers.log_files import LogPlace

FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="What a log is, if it is not detected; see import --formats."),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="ROLE=NAME", help="Which series of a log is which, such as loss=train/ce; repeatable."
    ),
]
DeclareOption = Annotated[
    list[str] | None,
    typer.Option("--declare", metavar="NAME=VALUE", help="What the run was meant to do, such as vocab_size=50257."),
]


@dataclass(frozen=True)
class LogOptions:
    """What the command line says about a log."""

    form: str | None = None
    roles: dict[str, str] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, form: str | None, assignments: list[str] | None, declarations: list[str] | None) -> LogOptions:
        roles = _assigned(assignments or [], "--map", str)
        return cls(form, roles, _assigned(declarations or [], "--declare", _value))


def _assigned(texts: list[str], option: str, read: Callable[[str], Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for text in texts:
        left, equals, right = text.partition("=")
        if not equals or not left.strip() or not right.strip():
            fail(f"{option} {text}: it has no form NAME=VALUE", f"such as {option} loss=train/loss")
        result[left.strip()] = read(right.strip())
    return result


def _value(text: str) -> Any:
    """A declared value: JSON where it is some, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def run_of(path_given: str, given: LogOptions) -> Iterator[str]:
    """The run directory at a path; where there is a log instead, one made of it for the time of the command."""
    path = Path(path_given).expanduser()
    if not path.exists() or _is_meant_as_run(path):
        yield path_given
        return
    from steadyrun.importers.import_log import folder_name, import_place

    location = _only_log(path, given.form)
    with _ended_cleanly(), tempfile.TemporaryDirectory(prefix="steadyrun-") as folder:
        target = Path(folder) / folder_name(location.name)
        done = import_place(location, target, given.roles, given.declared)
        say(f"{path} is a log ({location.format.title}): imported for this check alone")
        for line in done.odd:
            say(f"  odd: {line}")
        yield str(target)


def _only_log(path: Path, form: str | None) -> LogPlace:
    from steadyrun.importers.log_files import places

    command = f"{as_typed('steadyrun')} check"
    try:
        locations = places(path, form)
    except LogError as problem:
        if not path.is_dir():
            raise
        raise LogError(
            f"{path} is not a run directory, and no file in it is recognised as a log. If one of them is a log, say "
            f"what it is: {command} {shlex.quote(str(path / 'FILE'))} --format NAME (see steadyrun import --formats)"
        ) from problem
    if len(locations) > 1:
        some = "\n  ".join(f"{command} {shlex.quote(str(location.path))}" for location in locations[:5])
        raise LogError(
            f"{path} holds {len(locations)} logs. Import them all with `steadyrun import`, or give one:\n  {some}"
        )
    return locations[0]


def _is_meant_as_run(path: Path) -> bool:
    """Whether a path is a run directory, a damaged one, or has run directories in it; a run of MLflow is a log."""
    damaged = path.is_dir() and (bool(ranks(path)) or _unreadable(path / MANIFEST))
    mlflow = (path / "meta.yaml").is_file()
    return is_run(path) or (damaged and not mlflow) or (path.is_dir() and bool(runs_near(path)))


def _unreadable(manifest: Path) -> bool:
    try:
        json.loads(manifest.read_bytes())
    except OSError:
        return False
    except (ValueError, RecursionError):
        return True
    return False


@contextmanager
def _ended_cleanly() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: what it made for itself is taken away first."""
    signals = [name for name in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(name) is signal.SIG_DFL]

    def end(number: int, _frame: object) -> None:
        for name in signals:
            signal.signal(name, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for name in signals:
        signal.signal(name, end)
    try:
        yield
    finally:
        for name in signals:
            signal.signal(name, signal.SIG_DFL)
