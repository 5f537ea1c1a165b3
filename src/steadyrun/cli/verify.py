"""`steadyrun verify`: check a new run against section 6 of a post-mortem."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from steadyrun.cli.messages import as_typed, fail, no_run, out, say
from steadyrun.cli.output import UNWRAPPED
from steadyrun.errors import RunDirectoryError, SteadyrunError
from steadyrun.store.run_summary import printable

if TYPE_CHECKING:
    from steadyrun.postmortem.verification import Verification

_SIGNS = {"pass": "✓", "fail": "✗", "cannot-tell": "?", "skipped": "-"}


def verify(
    document: Annotated[str, typer.Argument(help="The post-mortem: its .json, or its .md with the .json beside it.")],
    new_run: Annotated[str, typer.Argument(help="The run directory of the fixed run.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (docs/postmortem.md).")] = False,
) -> None:
    """Check that a new run passes the verification list of a post-mortem.

    \b
    Examples:
      steadyrun verify experiments/mine/postmortems/step-0000312.md experiments/fixed
      steadyrun verify step-0000312.json experiments/fixed --json

    The broken run fails the list in section 6; a fixed run passes it. If an
    item cannot be checked (the run is too short, a series is missing), the
    output says why.

    \b
    Exit codes: 0 all items pass, 1 an item fails, 2 bad input or no
    readable run, 3 cannot tell.
    """
    from steadyrun.postmortem import verification

    try:
        verified = verification.verify(document, new_run)
    except RunDirectoryError as problem:
        no_run(problem, "verify", new_run)
    except (SteadyrunError, OSError) as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} verify --help")
    if as_json:
        from steadyrun.report.file_formats import dumps

        out(dumps(verified.to_dict()) + "\n")
    else:
        out(_table(verified))
        say(f"{verified.verdict.replace('-', ' ')}: {new_run}, checked against {document}")
    raise typer.Exit(verified.exit_code)


def _table(verified: Verification) -> str:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "expectation", "limit", "measured", "why"):
        table.add_column(title, overflow="fold")
    for check in verified.checked:
        cells = (check.verdict, check.expectation, check.limit, check.measured, check.why)
        sign = f"{_SIGNS[check.verdict]} {cells[0].replace('-', ' ')}"
        table.add_row(*(Text(printable(cell)) for cell in (sign, *cells[1:])))
    console = Console(width=None if sys.stdout.isatty() else UNWRAPPED, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
