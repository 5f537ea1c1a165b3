"""`steadyrun replay`: re-run an incident and find its cause."""

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
            "Arguments of the script come after --. Demo runs do not need it.",
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="The step of the incident. Default: the most severe incident.")
    ] = None,
    list_incidents: Annotated[bool, typer.Option("--list", help="List the incidents of the run and exit.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the smallest script and data that reproduce the incident."),
    ] = None,
    only: Annotated[
        bool, typer.Option("--no-experiments", help="Replay only; skip the experiments that find the cause.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Run every experiment, also after the cause is decided.")
    ] = False,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Also test a smaller model on the same data, and synthetic data.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes for the experiments.")] = 1,
    repeat: Annotated[
        int, typer.Option(min=1, help="How often to run the steps, to separate hardware from software.")
    ] = 3,
    rank: Annotated[
        int | None,
        typer.Option(min=0, help="With several processes: the rank to replay. Default: the one it happened on."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of torch threads. Default: as in the run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (docs/replay.md).")] = False,
) -> None:
    """Re-run an incident from its checkpoint and find its cause by experiment.

    \b
    Examples:
      steadyrun demo log-of-zero --steps 600
      steadyrun replay experiments/log-of-zero
      steadyrun replay experiments/mine --factory train:task
      steadyrun replay experiments/mine --factory train.py:task --step 312
      steadyrun replay experiments/mine --factory train:task --all --jobs 4
      steadyrun replay experiments/mine --factory train:task --export repro
      steadyrun replay experiments/mine --factory train.py:task -- --data shards

    First it proves itself: the replayed losses must equal the recorded ones,
    on the CPU bit for bit; otherwise it lists what differs. If a value
    became NaN or infinite, it finds the first operation responsible and
    repeats the step in float32.

    It runs the steps three times (--repeat) and decides whether software or
    data, a single error of the hardware, or a failing machine caused it.

    Then it makes one change at a time (learning rate, precision, clipping,
    batch, optimizer moments and more) until one removes the incident. The
    verdict is data, optimizer-state, learning-rate, precision, model,
    not-reproducible or undecided.

    Nothing in a run directory is executed: the program comes only from
    --factory. replay.json and the measurements of every step are written to
    the incident's folder. Arguments after -- become the script's sys.argv.

    \b
    Exit codes: 0 reproduced, 2 bad input or no readable incident,
    3 not reproducible, 130 stopped with Ctrl-C.
    """
    path, arguments = Path(run).expanduser(), script_arguments(context)
    with program_errors("replay", run):
        require_torch("replay runs training steps", "safetensors")
        if list_incidents:
            _list(path, as_json)
            return
        if export is not None:
            _require_free(export)
        if arguments and factory is None:
            raise UsageError("the arguments after -- belong to the script of --factory: add --factory FILE.py:FUNCTION")
        with as_script(factory, arguments):
            result = replayed(path, factory, step, threads, repeat=repeat, rank=rank)
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
    """Fail before minutes of replay, not after."""
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
        say(f"skipped: {problem}")
    if as_json:
        out(dumps(listed(path, incidents), indent=2) + "\n")
        return
    for incident in incidents:
        why = f"cannot be replayed: {incident.missing}" if incident.missing else incident.why
        on = f"rank {incident.rank}  " if incident.world > 1 else ""
        out(f"{incident.step:>8}  {on}{printable(incident.kind):<13}  {printable(why)}\n")
    if not incidents:
        say("the run has no incidents")


def _tell(result: Replay, as_json: bool) -> None:
    from steadyrun.replay import rendering
    from steadyrun.store.jsonio import dumps

    if as_json:
        out(dumps(rendering.as_json(result), indent=2) + "\n")
        return
    out("\n".join(printable(line) for line in rendering.as_lines(result)) + "\n")
    out(f"Measurements of every step: {shlex.quote(str(result.folder))}\n")


def _export(result: Replay, target: Path) -> None:
    say(f"writing {target} and verifying it in a fresh process …")
    for line in result.export(target):
        say(line)
