"""`steadyrun replay`: execute an incident again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steadyrun.cli.messages import out, say
from steadyrun.cli.replay_progress import explain, replayed
from steadyrun.cli.user_program import as_script, program_errors, require_torch, script_arguments
from steadyrun.errors import UsageError
from steadyrun.store.run_summary import printable

if TYPE_CHECKING:
    from steadyrun.replay.result import Replay


def replay(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run directory.")],
    factory: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="The function that builds the program and returns a steadyrun.Task; also FILE.py:FUNCTION. "
            "Arguments of the script come after --. Runs of the demo need none.",
        ),
    ] = None,
    step: Annotated[int | None, typer.Option(help="Which incident. Without it: the gravest one.")] = None,
    list_incidents: Annotated[bool, typer.Option("--list", help="List the incidents of the run and leave.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the smallest script and data that reproduce the incident."),
    ] = None,
    only: Annotated[
        bool, typer.Option("--no-experiments", help="Replay and hunt, and vary nothing to find the cause.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Try every change, also after the cause is decided: the full table.")
    ] = False,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Also try a smaller model on the same data, and made-up data.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the experiments.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads for torch; as in the run if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (docs/replay.md).")] = False,
) -> None:
    """Execute an incident again, from its checkpoint, and find the first bad tensor.

    The replay proves itself first: its losses must be the recorded ones, bit
    for bit on the CPU. Where they are not, it says what differs. It measures
    every step of the window and names the first violent change of a
    parameter. Where something became NaN or infinite, the step is executed
    once more under a microscope, and then in float32.

    Then it looks for the cause by experiment: from the same checkpoint one
    thing is changed at a time (learning rate, precision, clipping, the
    batch, the optimizer's moments and more) until it is decided what makes
    the incident go away. The verdict is data, optimizer-state,
    learning-rate, precision, model, not-reproducible or undecided.

    Nothing in a run directory is executed. The program is imported from
    --factory and from nowhere else. The incident's folder gets replay.json
    and the measurements. Arguments after -- are passed to the script:
    it sees them, and nothing else, in its sys.argv.

    \b
    Examples:
      steadyrun demo log-of-zero --steps 600
      steadyrun replay experiments/log-of-zero
      steadyrun replay experiments/mine --factory train:task
      steadyrun replay experiments/mine --factory train.py:task --step 312
      steadyrun replay experiments/mine --factory train:task --all --jobs 4
      steadyrun replay experiments/mine --factory train:task --export repro
      steadyrun replay experiments/mine --factory train.py:task -- --data shards

    \b
    Exit codes: 0 replayed and proved, 2 bad input or no readable incident,
    3 not reproducible, 130 stopped with Ctrl-C.
    """
    path, arguments = Path(run).expanduser(), script_arguments(context)
    with program_errors("replay", run):
        require_torch("replay executes training steps", "safetensors")
        if list_incidents:
            _list(path, as_json)
            return
        if export is not None:
            _require_free(export)
        if arguments and factory is None:
            raise UsageError("the arguments after -- are for the script of --factory, and --factory is not given")
        with as_script(factory, arguments):
            result = replayed(path, factory, step, threads)
            result.arguments = arguments
            if not only:
                explain(result, everything=everything, isolate=isolate, jobs=jobs)
        _tell(result, as_json)
        if export is not None:
            with as_script(factory, arguments):
                _export(result, export)
    if not result.proof.holds:
        raise typer.Exit(3)


def _require_free(target: Path) -> None:
    """Before minutes of replay, not after."""
    from steadyrun.replay.export import require_free

    require_free(target.expanduser())


def _list(path: Path, as_json: bool) -> None:
    from steadyrun.replay.incident import readable_incidents
    from steadyrun.replay.rendering import listed
    from steadyrun.store.jsonio import dumps
    from steadyrun.store.reader import open_run

    open_run(path)
    incidents, damaged = readable_incidents(path)
    for problem in damaged:
        say(f"left out: {problem}")
    if as_json:
        out(dumps(listed(path, incidents), indent=2) + "\n")
        return
    for incident in incidents:
        why = f"cannot be replayed: {incident.missing}" if incident.missing else incident.why
        out(f"{incident.step:>8}  {printable(incident.kind):<13}  {printable(why)}\n")
    if not incidents:
        say("no incidents")


def _tell(result: Replay, as_json: bool) -> None:
    from steadyrun.replay import rendering
    from steadyrun.store.jsonio import dumps

    if as_json:
        out(dumps(rendering.as_json(result), indent=2) + "\n")
        return
    out("\n".join(printable(line) for line in rendering.as_lines(result)) + "\n")
    out(f"Measurements of every step: {shlex.quote(str(result.folder))}\n")


def _export(result: Replay, target: Path) -> None:
    say(f"writing {target} and checking it in a fresh process …")
    for line in result.export(target):
        say(line)
