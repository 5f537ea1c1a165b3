"""`steadyrun run`: run a training script that was not edited, record it and report on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from steadyrun.cli.log_input import DeclareOption, LogOptions
from steadyrun.cli.messages import as_typed, fail
from steadyrun.errors import SteadyrunError


class Interrupted(SystemExit):
    """The script ended with Ctrl-C; `main` ends this process in the same way."""


class TakesScript(TyperCommand):
    """A command whose first argument is a script: everything after it belongs to the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ours, ctx.meta["arguments"] = _split(self, ctx, args)
        return super().parse_args(ctx, ours)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[SCRIPT_ARGUMENTS]..."]


def _split(command: TyperCommand, ctx: Any, args: list[str]) -> tuple[list[str], list[str]]:
    """Our options with the script, and the script's arguments."""
    takes_value = {
        name
        for parameter in command.get_params(ctx)
        if not getattr(parameter, "is_flag", True)
        for name in parameter.opts
    }
    index = 0
    while index < len(args):
        word = args[index]
        if word in {"-m", "--module"} and index + 1 < len(args):
            return args[: index + 2], args[index + 2 :]
        if word == "--":
            return [*args[:index], *args[index + 1 : index + 2]], args[index + 2 :]
        if not word.startswith("-") or word == "-":
            return args[: index + 1], args[index + 1 :]
        index += 2 if word in takes_value else 1
    return args, []


def run(
    context: typer.Context,
    script: Annotated[str | None, typer.Argument(help="The training script.", show_default=False)] = None,
    module: Annotated[
        str | None, typer.Option("--module", "-m", metavar="NAME", help="Run a module, as python -m does.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="FOLDER", help="The run directory. Default: experiments/<script name>, numbered."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable that holds the model, if another one was found.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The variable that holds the loss, if backward starts from another number."),
    ] = None,
    declarations: DeclareOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the last run in this folder: the script loads a checkpoint.")
    ] = False,
    live_page: Annotated[bool, typer.Option("--watch", help="Open the live page of the run in a browser.")] = False,
) -> None:
    """Run a training script without editing it, record it and report on it.

    \b
    Examples:
      steadyrun run train.py --epochs 10
      steadyrun run --dir experiments/small train.py --width 64
      steadyrun run --declare lr_max=3e-4 --declare clip=1 train.py
      steadyrun run -m mypackage.train --epochs 10
      steadyrun run --model netG --loss loss_g train_gan.py
      torchrun --nproc-per-node 2 -m steadyrun run train.py

    Options of steadyrun come before the script; everything after the script
    belongs to the script. It runs in this process as python would run it:
    same arguments, working directory, random numbers, output, signals and
    exit code. Training is bit-identical.

    Model, optimizers, scheduler, loss scaler, batches, clipping and
    checkpoints are found while it trains. The loss is the number on which
    backward starts. A validation loss is found if the script prints it under
    its name ("val_loss 0.31") or logs it. A GAN is one run with several parts;
    trainings one after the other are one run each. A line on stderr names
    what is not certain.

    At the end the report is printed on stderr, with the next command. The
    script's own steadyrun.record, or the callback of a framework, records
    instead if there is one. STEADYRUN=off runs the script alone.

    \b
    Exit codes: those of the script; 2 if there is no such script, or if --dir
    cannot be written.
    """
    from steadyrun.cli.script_checks import check_folder, check_target
    from steadyrun.scripts.main_module import Target
    from steadyrun.scripts.run_script import RunOptions, run_script, switched_off

    if script is None and module is None:
        fail("no script is given", f"see: {as_typed('steadyrun')} run --help")
    target = Target(module, is_module=True) if module is not None else Target(str(script))
    check_target(target, context.meta["arguments"])
    if not switched_off():
        check_folder(folder)
    options = RunOptions(
        folder=folder,
        config=_config(declarations),
        model=model,
        loss=loss,
        resume=resume,
        live_page=live_page,
        program=as_typed("steadyrun"),
    )
    ending = run_script(target, list(context.meta["arguments"]), options)
    if ending.interrupted:
        raise Interrupted(130)
    raise typer.Exit(ending.code)


def _config(declarations: list[str] | None) -> dict[str, Any]:
    from steadyrun.recording.declared_config import check_config

    try:
        return check_config(LogOptions.of(None, None, declarations).declared)
    except SteadyrunError as problem:
        fail(str(problem), f"see: {as_typed('steadyrun')} run --help")
