"""`steadyrun import`: run directories out of the logs of other tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steadyrun.cli.log_input import DeclareOption, FormatOption, LogOptions, MapOption, RunOption
from steadyrun.cli.messages import as_typed, fail, out, say, stderr
from steadyrun.errors import LogError

if TYPE_CHECKING:
    from steadyrun.importers.convert import Imported
    from steadyrun.importers.log_files import LogPlace

Progress = Callable[[int], None]


def import_(
    source: Annotated[str, typer.Argument(help="A log file, or a folder with logs.")],
    form: FormatOption = None,
    assignments: MapOption = None,
    declarations: DeclareOption = None,
    number: RunOption = None,
    folder: Annotated[Path, typer.Option("--out", help="Where run directories go.")] = Path("experiments"),
    name: Annotated[str | None, typer.Option(help="Name of the run; only if the source holds one run.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; show how each series is read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run on stdout.")] = False,
    _list: Annotated[bool, typer.Option("--formats", help="List the formats and leave.", is_eager=True,
                                               callback=lambda wanted: _list_formats(wanted))] = False,
) -> None:  # fmt: skip
    """Make a run directory out of a log that another tool wrote.

    TensorBoard, W&B, MLflow, Hugging Face, Lightning, Keras, YOLO, CSV,
    JSON lines, Parquet and what training programs print; a folder imports
    every run in it. A log in which the steps fall back to their start holds
    several runs: they become NAME-1, NAME-2 and so on. What is not in the log stays missing, so that questions
    which need it answer "cannot tell".

    \b
    Examples:
      steadyrun import outputs/trainer_state.json
      steadyrun import lightning_logs/ --out experiments
      steadyrun import train.log --dry-run
      steadyrun import metrics.csv --map loss=train/ce --map val_loss=dev/ce
      steadyrun import run.jsonl --declare vocab_size=50257
      steadyrun import train.log --run 2
      steadyrun check train.log

    Exit codes: 0 imported, 2 nothing could be, or not all, 130 stopped.
    """
    given = LogOptions.of(form, assignments, declarations, number)
    try:
        locations = _places(source, form)
    except (LogError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} import --help")
    if number is not None and len(locations) > 1:
        fail(
            f"{source} holds {len(locations)} logs; --run chooses a run of one",
            "leave --run out, or give one of the logs",
        )
    if name is not None and len(locations) > 1:
        fail(f"{source} holds {len(locations)} runs; --name names one", "leave --name out, or give one of the logs")
    failed = 0
    try:
        for location, progress in _with_bar(locations):
            target = None if dry_run else folder.expanduser() / _folder_name(name or _run_name(location, number))
            failed += not _done(location, target, given, progress, len(locations) == 1, as_json)
    except KeyboardInterrupt:
        say("stopped with Ctrl-C; nothing is left of the log that was being read")
        raise typer.Exit(130) from None
    if failed:
        fail(f"{failed} of {len(locations)} logs could not be imported", "the others were; see the messages above")


def _done(
    location: LogPlace, target: Path | None, given: LogOptions, progress: Progress, alone: bool, as_json: bool
) -> bool:
    """Import one run and report it; False, with a message, if it fails and others may succeed."""
    try:
        runs = _runs(location, target, given, progress)
    except LogError as problem:
        if alone:
            fail(str(problem), f"see: {as_typed('steadyrun')} import --help, --dry-run and --out")
        say(f"not imported: {problem}")
        return False
    for done in runs:
        out(_json(done)) if as_json else _show(done, target is None)
    return True


def _list_formats(wanted: bool) -> None:
    if wanted:
        from steadyrun.importers.formats import FORMATS

        for form in FORMATS:
            extra = f"  (pip install 'steadyrun[{form.extra}]')" if form.extra else ""
            out(f"{form.name:16} {form.title}{extra}\n")
        raise typer.Exit


def _places(source: str, form: str | None) -> list[LogPlace]:
    from steadyrun.importers.log_files import places

    return places(Path(source).expanduser(), form)


def _folder_name(name: str) -> str:
    from steadyrun.importers.import_log import folder_name

    return folder_name(name)


def _runs(location: LogPlace, target: Path | None, given: LogOptions, progress: Progress) -> list[Imported]:
    from steadyrun.importers.import_log import import_runs

    return import_runs(location, target, given.request(), progress)


def _run_name(location: LogPlace, number: int | None) -> str:
    return location.name if number is None else f"{location.name}-{number}"


def _with_bar(locations: list[LogPlace]) -> Any:
    """Each place with a function that moves its bar; bars only on a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        for number, location in enumerate(locations, start=1):
            size = location.path.stat().st_size if location.path.is_file() else None
            label = location.name if len(locations) == 1 else f"{number}/{len(locations)} {location.name}"
            task = bars.add_task(label[:40], total=size)
            yield location, lambda done, task=task: bars.update(task, completed=done)
            bars.remove_task(task)


def _show(done: Imported, dry_run: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from steadyrun.report.phrases import one_line
    from steadyrun.text import shown as number

    what = "would be imported" if dry_run else f"imported to {done.path}"
    which = f", run {done.number} of {done.runs}" if done.runs > 1 else ""
    say(f"{done.source} ({done.format}{which}): {what}; {_facts(done)}")
    if dry_run:
        shown = Table("series", "in the log", "points", "steps", "values", box=None, padding=(0, 2, 0, 0))
        for series in done.series:
            bad = f", {series.bad:,} not finite" if series.bad else ""
            span = f"{number(series.low)} to {number(series.high)}" if series.points > series.bad else "none finite"
            cells = (
                one_line(series.name),
                one_line(series.source),
                f"{series.points:,}",
                f"{series.first} to {series.last}",
                span + bad,
            )
            shown.add_row(*(Text(cell) for cell in cells))
        Console(highlight=False).print(shown)
    for line in done.odd:
        say(f"  odd: {line}")
    if not dry_run:
        say(f"  next: {as_typed('steadyrun')} check {done.path}")


def _facts(done: Imported) -> str:
    if not done.series:
        return "it has no result, only how the program ended"
    counted = {
        "step": "by steps",
        "epoch": "by epochs: the log has no steps",
        "point": "by its points: the log has no steps",
    }
    roles = ", ".join(
        series.name for series in done.series if series.name in {"loss", "val_loss", "lr/0", "grad_norm", "loss_scale"}
    )
    seams = f"; {done.attempts - 1} resumed" if done.attempts > 1 else ""
    named = f" ({roles})" if roles else ""
    return f"{done.points:,} points of {len(done.series)} series{named}, counted {counted[done.unit]}{seams}"


def _json(done: Imported) -> str:
    from steadyrun.store.jsonio import dumps

    summary = {
        "schema": 1,
        "run": None if done.path is None else str(done.path),
        "source": str(done.source),
        "format": done.format,
        "number": done.number,
        "runs": done.runs,
        "step_unit": done.unit,
        "roles": done.roles,
        "series": [
            {"name": series.name, "source": series.source, "points": series.points, "first": series.first,
             "last": series.last, "low": series.low, "high": series.high, "not_finite": series.bad}
            for series in done.series
        ],
        "odd": done.odd,
    }  # fmt: skip
    return dumps(summary) + "\n"
