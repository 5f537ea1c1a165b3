"""A report on stdout in the requested form, and as `report.json` in the run directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from steadyrun.cli.follow import changed_answers
from steadyrun.cli.messages import as_typed, fail, out, say

if TYPE_CHECKING:
    from steadyrun.report import Report
    from steadyrun.report.comparison import Comparison

UNWRAPPED = 1_000_000  # columns if stdout is not a terminal: lines do not wrap


def chosen(as_json: bool, junit: bool, markdown: bool) -> str:
    """The requested form."""
    wanted = [name for name, given in (("json", as_json), ("junit", junit), ("markdown", markdown)) if given]
    if len(wanted) > 1:
        fail(f"--{wanted[0]} and --{wanted[1]} exclude each other", "choose one of them")
    return wanted[0] if wanted else "text"


def tell(form: str, report: Report, comparison: Comparison | None) -> None:
    """Print the whole report."""
    if form == "json":
        out(_json(report, comparison, indent=2))
    elif form == "junit":
        from steadyrun.report.file_formats import junit

        out(junit(report, comparison))
    elif form == "markdown":
        from steadyrun.report.file_formats import markdown

        out(markdown(report, comparison))
    else:
        out(_tree(report, comparison))


def tell_change(form: str, report: Report, before: Report | None, comparison: Comparison | None) -> None:
    """Print what changed: the report on a terminal, else lines. Markdown and JUnit XML follow at the end."""
    if form == "json":
        out(_json(report, comparison, indent=None))
    elif form == "text" and sys.stdout.isatty():
        tell_end(form, report, comparison)
        say("following the run; press Ctrl-C to stop")
    elif form == "text":
        from steadyrun.report.terminal import change_line, verdict_line

        lines = [change_line(report, asked) for asked in changed_answers(report, before)]
        out("\n".join([*lines, verdict_line(report)]) + "\n")


def tell_end(form: str, report: Report, comparison: Comparison | None) -> None:
    """Print the last report: on a terminal it replaces the one before, in JSON it is one line."""
    if form == "json":
        out(_json(report, comparison, indent=None))
        return
    if form == "text" and sys.stdout.isatty():
        Console().clear()
    tell(form, report, comparison)


def leave(report: Report, comparison: Comparison | None) -> None:
    """Write `report.json` to the run directory."""
    from steadyrun.store.jsonio import replace_file

    path = Path(report.run).expanduser() / "report.json"
    try:
        replace_file(path, _json(report, comparison, indent=2))
    except OSError as problem:
        say(f"could not write {path}: {problem.strerror}")


def _json(report: Report, comparison: Comparison | None, *, indent: int | None) -> str:
    from steadyrun.report.file_formats import document, dumps

    return dumps(document(report, comparison), indent=indent) + "\n"


def _tree(report: Report, comparison: Comparison | None) -> str:
    """The report as text; coloured and wrapped if stdout is a terminal."""
    from steadyrun.report.terminal import show

    console = Console(width=None if sys.stdout.isatty() else UNWRAPPED, highlight=False)
    with console.capture() as captured:
        show(console, report, comparison, as_typed("steadyrun"))
    return captured.get()
