"""`steadyrun postmortem`: write the seven-section document of an incident."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steadyrun.cli.messages import as_typed, fail, no_run, out, say
from steadyrun.errors import RunDirectoryError, SteadyrunError
from steadyrun.store.run_summary import printable

if TYPE_CHECKING:
    from steadyrun.postmortem.document import Document


def postmortem(
    run: Annotated[str, typer.Argument(help="The run directory.")],
    step: Annotated[
        int | None, typer.Option(help="The step of the incident. Default: the most severe incident.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="A .md file or a folder. Default: RUN/postmortems."),
    ] = None,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Add a ticked checklist to stdout and to the document.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/postmortem.md) on stdout.")] = False,
    picture: Annotated[
        bool, typer.Option("--picture/--no-picture", help="Add a picture of the panels; needs steadyrun\\[png].")
    ] = True,
    lesson: Annotated[
        bool,
        typer.Option(
            "--lesson/--no-lesson", help="If the cause is proved, add the lesson to lessons.md beside the run."
        ),
    ] = True,
) -> None:
    """Write the post-mortem of an incident as Markdown and JSON.

    \b
    Examples:
      steadyrun postmortem experiments/lr-jump
      steadyrun postmortem experiments/mine --step 312 --checklist
      steadyrun postmortem experiments/mine --json | jq .root_cause
      steadyrun verify experiments/mine/postmortems/step-0000312.md experiments/fixed

    It has seven sections: symptoms in numbers, ranked hypotheses, the
    evidence for and against each, the root cause (or what would decide it),
    the smallest change, what a fixed run must show, and the lesson. Run
    steadyrun replay first: it gives the strongest evidence.

    The path of the Markdown file is printed on stdout.

    \b
    Exit codes: 0 written, 2 bad input, no readable run, or nothing to write
    about.
    """
    from steadyrun.postmortem.document import write

    try:
        document = write(run, step)
        _save(document, to, picture, lesson, checklist, as_json)
    except RunDirectoryError as problem:
        no_run(problem, "postmortem", run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} postmortem --help")


def _save(document: Document, to: Path | None, picture: bool, lesson: bool, checklist: bool, as_json: bool) -> None:
    from steadyrun.postmortem import document_files

    written = document_files.save(document, to, picture=picture, with_checklist=checklist)
    if written.problem:
        say(f"no picture: {written.problem}")
    if lesson:
        _add_lesson(document)
    if as_json:
        out(written.json.read_text(encoding="utf-8"))
        return
    if checklist:
        _tick(document)
    out(f"{written.markdown}\n")


def _add_lesson(document: Document) -> None:
    from steadyrun.postmortem import document_files

    if not document.root.known:
        say("lessons.md is unchanged: the cause is not proved")
        return
    try:
        path = document_files.add_lesson(document)
    except OSError as problem:
        say(f"could not add the lesson to lessons.md: {problem.strerror}")
        return
    if path is not None:
        say(f"added the lesson to {path}")


def _tick(document: Document) -> None:
    for tick in document.checklist:
        todo = f" To do: {tick.todo}" if tick.todo and not tick.done else ""
        out(printable(f"[{'x' if tick.done else ' '}] {tick.item} {tick.evidence}.{todo}") + "\n")
