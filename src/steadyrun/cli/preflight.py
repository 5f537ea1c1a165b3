"""`steadyrun preflight`: test a training program on its own batches before it runs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from steadyrun.cli import output
from steadyrun.cli.messages import stderr
from steadyrun.cli.rank_preflight import built, is_one_of_several, launched, on_ranks, told_by_rank_0
from steadyrun.cli.user_program import as_script, config_of, program_errors, require_torch, script_arguments

if TYPE_CHECKING:
    from steadyrun.report import Report


def preflight(
    context: typer.Context,
    factory: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The function that builds the program and returns a steadyrun.Task; also FILE.py:FUNCTION. "
            "Arguments of the script come after --.",
        ),
    ],
    config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="The declared config, as JSON or a JSON file; it is also passed to the function."
        ),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also run the probes that train for a while.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Run only this probe, or a section such as A4 or P1; repeatable."),
    ] = None,
    resumed: Annotated[
        str | None, typer.Option(metavar="RUN", help="The directory of the run that is being resumed.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=NUMBER", help="Change a threshold, such as P6.4.ends=0.8; repeatable."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="On several ranks: end all of them if a stage takes longer.", min=1.0),
    ] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (docs/report.md).")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="JUnit XML: one test case per probe.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Markdown for a comment.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every probe and every limit.")] = False,
) -> None:
    """Test a training program on its own batches before it runs.

    \b
    Examples:
      steadyrun preflight train:task
      steadyrun preflight train.py:task --config '{"causal": true}'
      steadyrun preflight train:task --config config.json --deep
      steadyrun preflight train:task --only P1 --only A3.1
      steadyrun preflight train:task --resumed experiments/mine
      steadyrun preflight train:task --json | jq .headline.fix
      steadyrun preflight train.py:task -- --data shards --layers 4
      torchrun --nproc-per-node 2 -m steadyrun preflight train:task

    \b
    with this function in train.py:
      def task(config):
          model = Model()
          optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
          return steadyrun.Task(model, optimizer, loss_fn, loader=loader)

    The function builds the program as the training script does. The Task can
    also hold scheduler, scaler, train_step, val_loader, tokenizer and
    config. Probes then test labels, padding and shifts, loaders, the loss,
    the parameters and one step. Each answers pass, fault, note, cannot tell
    (and what to add to the Task) or not applicable.

    Under torchrun all ranks test one step together: averaged gradients, equal
    replicas, different data. Rank 0 prints the report.

    Every probe restores the program bit for bit. Nothing is written to disk.

    Arguments after -- become the script's sys.argv.

    \b
    Exit codes: 0 healthy, 1 fault found, 2 bad input, 3 cannot tell,
    130 stopped with Ctrl-C.
    """
    arguments = script_arguments(context)
    form = output.chosen(as_json, junit, markdown)
    with program_errors("preflight", resumed or ""):
        require_torch("preflight runs a torch program")
        given = None if config is None else config_of(config)
        if is_one_of_several():
            again = f"{launched()} {_again(factory, False, only or [], arguments)}"
            with as_script(factory, arguments):
                report, group = on_ranks(factory, given, only or [], assignments or [], timeout, again)
            raise typer.Exit(told_by_rank_0(form, replace(report, verbose=verbose), group))
        with as_script(factory, arguments):
            report = _tried(factory, given, deep, only or [], resumed, assignments or [], arguments)
    output.tell(form, replace(report, verbose=verbose), None)
    raise typer.Exit(report.exit_code)


def _tried(
    factory: str,
    config: dict[str, Any] | None,
    deep: bool,
    only: list[str],
    resumed: str | None,
    assigned: list[str],
    arguments: list[str],
) -> Report:
    """Build the program and run the probes, with a progress bar on stderr."""
    from steadyrun.report.limits import parsed
    from steadyrun.report.preflight import known_probes, run
    from steadyrun.store.reader import open_run

    known_probes(only)  # before the program is built, which may take minutes
    thresholds = parsed(assigned)
    if resumed is not None:
        open_run(resumed)
    task = built(factory, config)
    columns = (TextColumn("preflight"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=stderr(), transient=True) as progress:
        bar = progress.add_task("reading batches", total=None)
        return run(
            task,
            name=factory,
            again=_again(factory, deep, only, arguments),
            resumed=resumed,
            deep=deep,
            only=only,
            thresholds=thresholds,
            on_probe=lambda done, total, name: progress.update(bar, completed=done, total=total, description=name),
        )


def _again(factory: str, deep: bool, only: list[str], arguments: list[str]) -> str:
    words = ["preflight", factory, *(["--deep"] if deep else [])]
    words += [word for code in only for word in ("--only", code)]
    return shlex.join([*words, *(["--", *arguments] if arguments else [])])
