"""What `steadyrun demo` shows of a run after training: leaf, replay, post-mortem, dashboard, and what to type next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from steadyrun.cli.messages import as_typed, say
from steadyrun.cli.replaying import explain, replayed
from steadyrun.store.jsonio import replace_file
from steadyrun.store.summary import printable

if TYPE_CHECKING:
    from steadyrun.report import Report


def tell(directory: Path) -> list[str]:
    """The whole story of a run, on stdout; returns commands that go on from here."""
    report = _leaf(directory)
    captured = any((directory / "incidents").glob("step-*/incident.json"))
    step = _replay(directory) if captured else None
    document = _postmortem(directory, step) if captured or report.leaf is not None else None
    dashboard = _dashboard(directory)
    typer.echo("\nWritten")
    if document is not None:
        typer.echo(f"  post-mortem  {document}")
    typer.echo(f"  dashboard    {dashboard}")
    return [] if document is None else [f"postmortem {shlex.quote(str(directory))} --checklist", _verify(document)]


def _leaf(directory: Path) -> Report:
    import steadyrun

    report = steadyrun.check(directory)
    asked = report.leaf or next((note for note in report.notes if note.question.code.startswith("D")), None)
    typer.echo(f"\nThe walk: {report.verdict}")
    if asked is not None:
        kind = "fault" if asked is report.leaf else "note"
        typer.echo(printable(f"  {kind} {asked.question.code} {asked.answer.outcome}: {asked.answer.message}"))
        if asked.answer.fix:
            typer.echo(printable(f"  fix: {asked.answer.fix}"))
    return report


def _replay(directory: Path) -> int | None:
    """Execute the gravest incident again; its step, None where that failed."""
    from steadyrun.errors import SteadyrunError

    typer.echo("\nThe moment, executed again")
    try:
        result = replayed(directory, None, None, None)
        explain(result, everything=False, isolate=False, jobs=1)
    except SteadyrunError as problem:
        say(f"the incident was not replayed: {problem}")
        return None
    for line in str(result).splitlines():
        typer.echo(f"  {printable(line)}")
    return result.incident.step


def _postmortem(directory: Path, step: int | None) -> Path | None:
    from steadyrun.errors import SteadyrunError
    from steadyrun.postmortem import writing
    from steadyrun.postmortem.document import write

    try:
        document = write(directory, step)
        written = writing.save(document, None, picture=True, with_checklist=False)
        writing.add_lesson(document)
    except (SteadyrunError, OSError) as problem:
        say(f"no post-mortem was written: {problem}")
        return None
    return written.markdown


def _dashboard(directory: Path) -> Path:
    from steadyrun.panels.board import board_of
    from steadyrun.panels.page import page

    target = directory / "dashboard.html"
    replace_file(target, page(board_of(str(directory), {}), None))
    return target


def _verify(document: Path) -> str:
    return f"verify {shlex.quote(str(document))} NEW_RUN"


def commands(words: list[str]) -> str:
    """Commands as the reader types them, a line each."""
    return "\n".join(f"  {as_typed('steadyrun')} {line}" for line in words)
