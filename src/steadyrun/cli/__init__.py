"""The command line: one file per command, each importing what is heavy only when it runs."""

from typing import Annotated

import typer

from steadyrun.cli.demo import demo

app = typer.Typer(
    name="steadyrun",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        import steadyrun

        typer.echo(f"steadyrun {steadyrun.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """Record a training run and find out what is wrong with it.

    Start with: steadyrun demo

    It trains a small language model on the CPU and leaves a run directory.
    """


def main() -> None:
    """The `steadyrun` console script."""
    app()
