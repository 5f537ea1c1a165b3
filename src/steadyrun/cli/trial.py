"""`steadyrun trial`: train short variants of a program to find out what is wrong with it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from steadyrun.cli.messages import as_typed, out, say, stderr
from steadyrun.cli.user_program import as_script, config_of, program_errors, require_torch, script_arguments
from steadyrun.errors import UsageError
from steadyrun.store.run_summary import printable

if TYPE_CHECKING:
    from steadyrun.trial.commit_search import CommitSearch
    from steadyrun.trial.result import Trial
    from steadyrun.trial.trial import OnTwin

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def trial(
    context: typer.Context,
    factory: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:FUNCTION]",
            help="The function that builds the program and returns a steadyrun.Task; also FILE.py:FUNCTION. Demo "
            "runs do not need it.",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="The run to investigate: its config is used, and the result is written to its directory.",
        ),
    ] = None,
    checkpoint: Annotated[
        int | None,
        typer.Option(metavar="STEP", help="Start from the checkpoint of the run's incident at this step."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The config as JSON or a JSON file; it is passed to the function."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE", help="Test only this change: rate, decay, targets, …; repeatable, or separated by commas."
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B,…", help="Test these values of the config, such as model.dropout=0,0.1; repeatable."
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=2, help="Seeds per change. Without changes: measure the noise between seeds."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=8, help="Steps per twin. Default: 40 to 200, depending on the budget.")
    ] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="The time limit: 90s, 5m, 1h.")] = "5m",
    on: Annotated[
        str | None,
        typer.Option(
            metavar="WORKERS", help="Where the twins train: here, local:N, ray[:ADDRESS], slurm (docs/workers.md)."
        ),
    ] = None,
    commits: Annotated[
        str | None,
        typer.Option(metavar="GOOD..BAD", help="Find the commit that made training worse."),
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="Print the best change as a patch or a line of code, and test it.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show every change, and why others were not tested.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (docs/trial.md).")] = False,
) -> None:
    """Train short copies of a program, one change each, to find out what is wrong.

    \b
    Examples:
      steadyrun trial train.py:task
      steadyrun trial train:task --run experiments/mine
      steadyrun trial train:task --only rate,decay --budget 2m
      steadyrun trial train:task --vary lr=1e-4,3e-4,1e-3 --vary model.dropout=0,0.1
      steadyrun trial train:task --seeds 8 --vary optimizer=adamw,lion
      steadyrun trial train:task --commits v1.2..main
      steadyrun trial train:task --config config.json --fix
      steadyrun trial train:task --on ray
      steadyrun trial train.py:task -- --data shards --layers 4

    Use it if a run learns badly from the first step, or to decide a suspect
    of check. The copies (twins) start from the same weights and see the same
    data in the same order, so that only the change makes a difference:
    learning rate, decay, dropout, label smoothing, clipping, optimizer
    settings, initial weights, precision, batch size; shuffled targets,
    random inputs, training on validation data; frozen parts, loss terms,
    blocks. Twins with other seeds measure the noise.

    Your files are not changed. Ctrl-C stops the trial and keeps its results:
    finished twins are not trained again.

    \b
    Exit codes: 0 no fault found, 1 fault found, 2 bad input,
    3 undecided, 130 stopped with Ctrl-C.
    """
    arguments, command = script_arguments(context), shlex.join(["steadyrun", *sys.argv[1:]])
    with program_errors("trial", run or ""):
        require_torch("a trial trains a torch program")
        given = {} if config is None else config_of(config)
        seconds = _seconds(budget)
        values = _vary(vary or [])
        named = factory or _factory_of(run)
        words = [word for given_word in only or [] for word in given_word.split(",") if word]
        with as_script(named, arguments):
            if commits is None:
                result = _tried(named, given, run, checkpoint, words, values, seeds, steps, seconds, on, command)
                fixed = _fixed(result, named, config, on) if fix else []
            else:
                found = _bisected(named, commits, given, steps, seeds, seconds, on, arguments)
    if commits is not None:
        _print(found.to_dict(), found.lines(everything=verbose), as_json)
        raise typer.Exit(130 if found.interrupted else found.exit_code)
    _print(result.to_dict() | {"fixed": fixed}, [*result.lines(everything=verbose), *fixed], as_json)
    if run is not None:
        say(f"the result is saved with the run; see: {as_typed('steadyrun')} check {shlex.quote(run)}")
    raise typer.Exit(130 if result.interrupted else result.exit_code)


def _print(content: dict[str, Any], lines: list[str], as_json: bool) -> None:
    from steadyrun.store.jsonio import dumps

    out(dumps(content, indent=2) + "\n" if as_json else "\n".join(printable(line) for line in lines) + "\n")


def _factory_of(run: str | None) -> str:
    """The factory of a demo run; any other must be named by the user, because it is executed."""
    from steadyrun.store.reader import open_run

    if run is None:
        raise UsageError("name the function that builds the program: steadyrun trial train.py:task")
    suggested = str(open_run(run).manifest.get("factory") or "")
    if suggested.startswith("steadyrun.tutor."):
        return suggested
    hint = f". The run suggests {suggested}: use it if you trust the run" if suggested else ""
    raise UsageError(f"name the function that builds the program: steadyrun trial MODULE:FUNCTION --run {run}{hint}")


def _tried(
    factory: str,
    config: dict[str, Any],
    run: str | None,
    checkpoint: int | None,
    only: list[str],
    vary: dict[str, list[Any]],
    seeds: int | None,
    steps: int | None,
    budget: float,
    on: str | None,
    command: str,
) -> Trial:
    """Run the trial, with a progress bar on stderr."""
    from steadyrun.trial.trial import trial as tried

    with _progress("building the program") as on_twin:
        return tried(
            factory,
            config=config,
            run=run,
            checkpoint=checkpoint,
            only=only,
            vary=vary,
            seeds=seeds,
            steps=steps,
            budget=budget,
            on=on or _place(),
            on_twin=on_twin,
            command=command,
        )


def _place() -> str:
    """Local processes; this process alone if there is an accelerator, which they would have to share."""
    import torch

    return "here" if torch.accelerator.is_available() else "local"


def _fixed(result: Trial, factory: str, config: str | None, on: str | None) -> list[str]:
    """The best change as a patch or a line of code, and the result of testing it."""
    from steadyrun.trial.fix import fix_of, verified

    file = Path(config).expanduser() if config and not config.lstrip().startswith("{") else None
    found = fix_of(result, file)
    if found is None:
        return ["no change is better beyond noise: nothing to fix"]
    with _progress("testing the fix") as on_twin:
        return [*found.lines(), verified(found, factory, result, on=on or _place(), on_twin=on_twin).line]


def _bisected(
    factory: str,
    commits: str,
    config: dict[str, Any],
    steps: int | None,
    seeds: int | None,
    budget: float,
    on: str | None,
    arguments: list[str],
) -> CommitSearch:
    """Search for the commit, with a progress bar on stderr."""
    from steadyrun.trial.commits import bisect_commits, parse_range
    from steadyrun.trial.rounds import SEEDS

    good, bad = parse_range(commits)
    with _progress("measuring both ends") as on_commit:
        return bisect_commits(
            factory,
            good,
            bad,
            config=config,
            steps=steps,
            seeds=seeds or SEEDS,
            budget=budget,
            on=on,
            arguments=arguments,
            on_commit=on_commit,
        )


@contextmanager
def _progress(first: str) -> Iterator[OnTwin]:
    """A progress bar on stderr with the current twin and the result so far."""
    columns = (TextColumn("trial"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=stderr(), transient=True) as progress:
        bar = progress.add_task(first, total=None)

        def on_twin(done: int, planned: int, words: str, known: str) -> None:
            described = f"{words}  ({known})" if known else words
            progress.update(bar, completed=done, total=planned, description=printable(described))

        yield on_twin


def _seconds(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--budget must be a time such as 90s, 5m or 1h, not {text!r}")
    return float(match[1]) * _UNITS[match[2]]


def _vary(given: list[str]) -> dict[str, list[Any]]:
    """Parse `lr=1e-4,3e-4` into a name and its values; values that are not JSON are text."""
    wanted: dict[str, list[Any]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not name or not equals or not values:
            raise UsageError(f"--vary must look like lr=1e-4,3e-4, not {text!r}")
        wanted[name] = _values(values)
    return wanted


def _values(text: str) -> list[Any]:
    try:
        listed = json.loads(f"[{text}]")
    except ValueError:
        return [_value(part) for part in text.split(",")]
    return list(listed)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
