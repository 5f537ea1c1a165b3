"""Accept a log of another tool instead of a run directory: import it for the time of the command."""

from __future__ import annotations

import json
import shlex
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steadyrun.cli.messages import as_typed, fail, is_run, runs_near, say
from steadyrun.errors import LogError
from steadyrun.signals.declared_names import NAMES
from steadyrun.store.layout import MANIFEST, ranks

if TYPE_CHECKING:
    from steadyrun.importers.convert import Request
    from steadyrun.importers.log_files import LogPlace

FormatOption = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="What a log is, if it is not detected; see import --formats."),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="ROLE=NAME",
        help="Which series of a log is which, such as loss=train/ce, or score=own for what has to rise; repeatable.",
    ),
]
DeclareOption = Annotated[
    list[str] | None,
    typer.Option("--declare", metavar="NAME=VALUE", help="What the run was meant to do, such as vocab_size=50257."),
]
RunOption = Annotated[
    int | None,
    typer.Option("--run", metavar="N", min=1, help="Which run of a log, or of a folder of logs, that holds several."),
]


_MOST_RUNS = 1_000  # of a folder, that are listed


@dataclass(frozen=True)
class LogOptions:
    """What the command line says about a log."""

    form: str | None = None
    roles: dict[str, str] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    run: int | None = None

    @classmethod
    def of(
        cls, form: str | None, assignments: list[str] | None, declarations: list[str] | None, run: int | None = None
    ) -> LogOptions:
        roles = _assigned(assignments or [], "--map", str, "loss=train/loss")
        declared = _assigned(declarations or [], "--declare", _value, "lr_max=3e-4")
        _mention_unknown(declared)
        return cls(form, roles, declared, run)

    def request(self) -> Request:
        from steadyrun.importers.convert import Request

        return Request(self.roles, self.declared, self.run)


def _mention_unknown(declared: dict[str, Any]) -> None:
    """A name that nothing is compared with is a typing error: nobody declares one for himself on a command line."""
    for name in declared:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(NAMES)}"
            say(f"--declare {name}: nothing is compared with it; {hint}")


def _assigned(texts: list[str], option: str, read: Callable[[str], Any], example: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for text in texts:
        left, equals, right = text.partition("=")
        if not equals or not left.strip() or not right.strip():
            fail(f"{option} {text}: NAME=VALUE is expected", f"such as {option} {example}")
        result[left.strip()] = read(right.strip())
    return result


def _value(text: str) -> Any:
    """A declared value: JSON if it parses, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class LogRun:
    """One run of a log while it lies in a folder of its own, or why it could not be read."""

    number: int
    name: str
    path: str = ""
    source: str = ""
    title: str = ""  # of its format
    odd: tuple[str, ...] = ()
    problem: str = ""
    points: int = 0  # of its longest series


def is_log(path_given: str) -> bool:
    """Whether a path is a log, or a folder of logs, rather than a run directory."""
    path = Path(path_given).expanduser()
    return path.exists() and not _is_meant_as_run(path)


def run_folders(path_given: str) -> list[Path]:
    """The run directories in a folder that is not one itself."""
    path = Path(path_given).expanduser()
    inside = path.is_dir() and not is_run(path) and _is_meant_as_run(path)
    return [run for run in runs_near(path, most=_MOST_RUNS) if path in run.parents] if inside else []


@contextmanager
def run_of(path_given: str, given: LogOptions) -> Iterator[str]:
    """The run directory at a path; if a log of one run lies there, one made of it for the time of the command."""
    if not is_log(path_given):
        yield path_given
        return
    from steadyrun.importers.import_log import folder_name, import_place

    locations = _logs(Path(path_given).expanduser(), given.form)
    if len(locations) > 1:
        raise LogError(f"{path_given} holds {len(locations)} logs. Give one of them, such as {locations[0].path}.")
    with _ended_cleanly(), tempfile.TemporaryDirectory(prefix="steadyrun-") as folder:
        target = Path(folder) / folder_name(locations[0].name)
        import_place(locations[0], target, given.roles, given.declared, given.run)
        yield str(target)


def log_runs(path_given: str, given: LogOptions) -> Iterator[LogRun]:
    """The runs of a log, or of all logs in a folder, one after the other; each is there until the next is asked for."""
    from steadyrun.importers.import_log import folder_name, import_runs

    path = Path(path_given).expanduser()
    locations = _logs(path, given.form)
    before = 0
    for location in locations:
        with _ended_cleanly(), tempfile.TemporaryDirectory(prefix="steadyrun-") as folder:
            try:
                runs = import_runs(
                    location, Path(folder) / folder_name(location.name), replace(given, run=None).request()
                )
            except LogError as problem:
                if len(locations) == 1:
                    raise
                before += 1
                yield LogRun(before, location.name, source=str(location.path), problem=str(problem))
                continue
            for run in runs:
                number = before + run.number
                title = location.format.title
                longest = max((series.points for series in run.series), default=0)
                about = (str(run.path), str(location.path), title, tuple(run.odd))
                yield LogRun(number, run.name, *about, points=longest)
            before += len(runs)


def _logs(path: Path, form: str | None) -> list[LogPlace]:
    from steadyrun.importers.log_files import places

    try:
        return places(path, form)
    except LogError as problem:
        if not path.is_dir():
            raise
        raise LogError(
            f"{path} is not a run directory, and no file in it is recognised as a log. If one of them is a log, say "
            f"what it is: {as_typed('steadyrun')} check {shlex.quote(str(path / 'FILE'))} --format NAME "
            "(see steadyrun import --formats)"
        ) from problem


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
