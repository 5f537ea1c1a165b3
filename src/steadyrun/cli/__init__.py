"""Job: the command line: one file per command, which imports heavy packages only when it runs.
May import: everything; typer, rich.
Entry point: `main`.
Output: data on stdout, messages on stderr, an exit code.
"""

import sys
import traceback
from typing import Annotated

import typer

from steadyrun.cli.check import check
from steadyrun.cli.dashboard import dashboard
from steadyrun.cli.demo import demo
from steadyrun.cli.explain import explain
from steadyrun.cli.import_command import import_
from steadyrun.cli.look import look
from steadyrun.cli.mcp import mcp
from steadyrun.cli.postmortem import postmortem
from steadyrun.cli.preflight import preflight
from steadyrun.cli.replay import replay
from steadyrun.cli.run import Interrupted, TakesScript, run
from steadyrun.cli.serve import serve
from steadyrun.cli.top import top
from steadyrun.cli.trial import trial
from steadyrun.cli.user_program import TakesProgram
from steadyrun.cli.verify import verify

app = typer.Typer(
    name="steadyrun",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, preflight, check, dashboard, serve, top, replay, trial, look, postmortem, verify, explain, mcp):
    app.command(cls=TakesProgram if command in (preflight, replay, trial, look) else None)(command)
app.command("import")(import_)
app.command(cls=TakesScript)(run)


def _show_version(wanted: bool) -> None:
    if wanted:
        import steadyrun

        typer.echo(f"steadyrun {steadyrun.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Find out why a training run went wrong, and what to change.

    \b
    Example:
      steadyrun demo                       trains a small language model on the CPU
      steadyrun check experiments/healthy  checks the run that it recorded

    Every command has examples of its own: steadyrun COMMAND --help
    """


def main() -> None:
    """Run the `steadyrun` console script."""
    try:
        typer.main.get_command(app)()  # `app()` would also replace `sys.excepthook`, which a script sees
    except Interrupted:
        sys.excepthook = lambda *_: None  # the traceback is printed; Python ends with the signal, as it would have
        raise KeyboardInterrupt from None
    except Exception:  # Python would exit with 1, the code of a fault
        traceback.print_exc()
        sys.exit(2)
