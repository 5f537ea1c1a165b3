"""`steadyrun demo`: train the grammar tutor, healthy or with one engineered fault."""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from steadyrun.cli.messages import as_typed, fail, is_run, say, stderr
from steadyrun.cli.replay_progress import explain, replayed
from steadyrun.store.jsonio import replace_file
from steadyrun.store.run_summary import printable

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.report import Report
    from steadyrun.tutor.recipe import Recipe
    from steadyrun.tutor.train import OnStep, TrainResult


# What `steadyrun demo` shows of a run after training: leaf, replay, post-mortem, dashboard, and what to type next.


def tell(directory: Path) -> list[str]:
    """The whole story of a run, on stdout; returns commands that go on from here."""
    report = _leaf(directory)
    captured = any((directory / "incidents").glob("step-*/incident.json"))
    step = _replay(directory) if captured else None
    document = _postmortem(directory, step) if captured or report.leaf is not None else None
    dashboard = _dashboard(directory)
    typer.echo("\nWritten")
    if document is not None:
        typer.echo(f"  post-mortem  {document}")
    typer.echo(f"  dashboard    {dashboard}")
    return [] if document is None else [f"postmortem {shlex.quote(str(directory))} --checklist", _verify(document)]


def _leaf(directory: Path) -> Report:
    import steadyrun

    report = steadyrun.check(directory)
    asked = report.leaf or next((note for note in report.notes if note.question.code.startswith("D")), None)
    typer.echo(f"\nThe walk: {report.verdict}")
    if asked is not None:
        kind = "fault" if asked is report.leaf else "note"
        typer.echo(printable(f"  {kind} {asked.question.code} {asked.answer.outcome}: {asked.answer.message}"))
        if asked.answer.fix:
            typer.echo(printable(f"  fix: {asked.answer.fix}"))
    return report


def _replay(directory: Path) -> int | None:
    """Execute the gravest incident again; its step, None where that failed."""
    from steadyrun.errors import SteadyrunError

    typer.echo("\nThe moment, executed again")
    try:
        result = replayed(directory, None, None, None)
        explain(result, everything=False, isolate=False, jobs=1)
    except SteadyrunError as problem:
        say(f"the incident was not replayed: {problem}")
        return None
    for line in str(result).splitlines():
        typer.echo(f"  {printable(line)}")
    return result.incident.step


def _postmortem(directory: Path, step: int | None) -> Path | None:
    from steadyrun.errors import SteadyrunError
    from steadyrun.postmortem import document_files
    from steadyrun.postmortem.document import write

    try:
        document = write(directory, step)
        written = document_files.save(document, None, picture=True, with_checklist=False)
        document_files.add_lesson(document)
    except (SteadyrunError, OSError) as problem:
        say(f"no post-mortem was written: {problem}")
        return None
    return written.markdown


def _dashboard(directory: Path) -> Path:
    from steadyrun.panels.board import board_of
    from steadyrun.panels.dashboard_page import page

    target = directory / "dashboard.html"
    replace_file(target, page(board_of(str(directory), {}), None))
    return target


def _verify(document: Path) -> str:
    return f"verify {shlex.quote(str(document))} NEW_RUN"


def commands(words: list[str]) -> str:
    """Commands as the reader types them, a line each."""
    return "\n".join(f"  {as_typed('steadyrun')} {line}" for line in words)


EXPERIMENTS = Path("experiments")
SECONDS_BETWEEN_UPDATES = 0.1


def demo(
    fault: Annotated[str, typer.Argument(help="The engineered fault, or healthy; --list names them.")] = "healthy",
    out: Annotated[
        Path | None,
        typer.Option(help="The run directory. Without it: experiments/FAULT, or the first free of -2, -3, ..."),
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimizer steps; the schedule spans exactly these.")] = 2000,
    seed: Annotated[int, typer.Option(help="Fixes the initial weights and the order of the data.")] = 42,
    remedy: Annotated[
        bool, typer.Option("--remedy", help="Train the fault's program with the fault repaired, into FAULT-remedied.")
    ] = False,
    list_faults: Annotated[bool, typer.Option("--list", help="Name every fault and leave.")] = False,
    train_only: Annotated[
        bool, typer.Option("--train-only", help="Train and record, and leave the rest of the story out.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run that --out already holds.")] = False,
) -> None:
    """Train a mini-GPT on English verb sentences and show the whole story.

    Healthy by default; name a fault to train the same program with that
    mistake built in. Then the run is checked; an incident is executed again
    and its cause looked for by experiment; the post-mortem and the dashboard
    are written. Training takes well under a minute on two CPU cores, the
    story another; it needs torch and tokenizers (the extra "tutor").

    \b
    Examples:
      steadyrun demo                        healthy, in experiments/healthy
      steadyrun demo rare-token-spike       a spike, its cause, its post-mortem
      steadyrun demo --list                 the faults to choose from
      steadyrun demo no-warmup --steps 300  a short run with a fault in it
      steadyrun demo --seed 7 --out runs/7  another seed, another place
      steadyrun demo rare-token-spike --remedy  the fault repaired

    \b
    Exit codes: 0 trained, 2 bad input, 130 stopped with Ctrl-C.
    """
    _require_tutor()
    if list_faults:
        _print_faults()
        return
    recipe = _recipe(fault, steps, seed, remedy)
    name = f"{fault}-remedied" if remedy else fault
    directory = _first_free(EXPERIMENTS / name) if out is None else _vacate(out.expanduser(), force)
    _create(directory)
    try:
        result = _train(fault, recipe, directory)
    except KeyboardInterrupt:
        say(f"stopped with Ctrl-C; what was recorded until then is in {directory}")
        raise typer.Exit(130) from None
    _summarise(name, result, directory)
    more = [] if train_only else tell(directory)
    _next(fault, directory, more, remedied=remedy, explained=not train_only)


def _require_tutor() -> None:
    try:
        for name in ("torch", "tokenizers"):
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        fail(
            f"the demo trains a model and needs {error.name}, which is not installed",
            'pip install "steadyrun[tutor]"',
        )


def _print_faults() -> None:
    from steadyrun.tutor.faults import FAULTS

    width = max(map(len, FAULTS))
    for name, fault in FAULTS.items():
        typer.echo(f"{name:<{width}}  {fault.leaf or fault.note or '-':<4}  {fault.summary}")


def _recipe(fault: str, steps: int, seed: int, remedy: bool) -> Recipe:
    from steadyrun.tutor.faults import FAULTS, load_recipe

    clip = _clip_of(EXPERIMENTS / fault, steps, seed) if remedy else None
    try:
        return load_recipe(fault, remedied=remedy, steps=steps, seed=seed, **({} if clip is None else {"clip": clip}))
    except ValueError as error:
        fail(str(error), f"see: steadyrun demo {'--help' if fault in FAULTS else '--list'}")


def _clip_of(run: Path, steps: int, seed: int) -> float | None:
    """The clip threshold that the faulty run's own norms suggest; None where there is no such run to learn it from."""
    import steadyrun

    if not is_run(run):
        say(f"there is no {run} to take a clip threshold from; the usual one is used")
        return None
    view = steadyrun.open_run(run)
    declared = view.manifest.get("config", {})
    if (declared.get("seed"), declared.get("total_steps")) != (seed, steps):
        say(f"{run} has another seed or length, so the usual clip threshold is used")
        return None
    clip = steadyrun.suggest_clip(view)
    say(f"clip threshold {clip:g}, from the gradient norms of {run} before its incident")
    return clip


def _first_free(path: Path) -> Path:
    """`path`, or the first of `path`-2, `path`-3, ... that does not exist."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _vacate(out: Path, force: bool) -> Path:
    """`out`, once nothing is there that a new run would overwrite."""
    if not out.is_dir() or not any(out.iterdir()):
        return out
    if not force:
        fail(f"{out} is not empty", "choose another --out, or add --force to replace a run directory")
    if out.is_symlink() or not is_run(out):
        fail(f"{out} is not a steadyrun run directory, so --force leaves it alone", "choose another --out")
    shutil.rmtree(out)
    return out


def _create(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot create {directory}: {error.strerror}", "choose another directory with --out")
    if not os.access(directory, os.W_OK | os.X_OK):
        fail(f"cannot write to {directory}", "choose another directory with --out")


def _train(fault: str, recipe: Recipe, directory: Path) -> TrainResult:
    import torch

    from steadyrun.tutor.faults import FAULTS
    from steadyrun.tutor.train import train_recorded

    # Tensors this small gain little from a second thread, and on a busy machine threads waiting for each
    # other cost many times what they save. One thread also means one order of summation on every machine.
    torch.set_num_threads(1)
    config = recipe.config
    what = f"the remedy of {fault}" if recipe.remedied else f"{fault}: {FAULTS[fault].summary}"
    say(f"{what}\n{config.steps} steps, warmup {config.warmup_steps}, seed {config.seed}, into {directory}")
    with _progress() as progress:
        return train_recorded(recipe, directory, _show_steps(progress, config.steps))


def _progress() -> Progress:
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  lr {task.fields[lr]:.1e}  grad norm {task.fields[norm]:.2f}"),
        TimeRemainingColumn(),
        console=stderr(),
    )


def _show_steps(progress: Progress, steps: int) -> OnStep:
    """A callback that moves the bar ten times a second: reading a tensor waits for it."""
    nothing_yet = float("nan")
    task = progress.add_task("", total=steps, loss=nothing_yet, lr=nothing_yet, norm=nothing_yet)
    due = 0.0

    def on_step(step: int, loss: Tensor, lr: float, grad_norm: Tensor) -> None:
        nonlocal due
        if time.monotonic() >= due or step + 1 == steps:
            due = time.monotonic() + SECONDS_BETWEEN_UPDATES
            progress.update(task, completed=step + 1, loss=float(loss), lr=lr, norm=float(grad_norm))

    return on_step


def _next(fault: str, directory: Path, more: list[str], *, remedied: bool, explained: bool) -> None:
    """What to type next."""
    from steadyrun.tutor.faults import FAULTS

    run = shlex.quote(str(directory))
    lines = [f"check {run}", f"dashboard {run} --open", *more, "demo --list"]
    if not remedied and FAULTS[fault].remedy is not None:
        lines.insert(len(lines) - 1, f"demo {fault} --remedy")
    lines.append(f"demo {'rare-token-spike' if fault == 'healthy' or not explained else 'healthy'}")
    typer.echo(f"\nNext:\n{commands(lines)}")


def _summarise(fault: str, result: TrainResult, directory: Path) -> None:
    import steadyrun

    series = len(steadyrun.open_run(directory).names())
    typer.echo(
        f"{fault}: {len(result.losses)} steps in {result.seconds:.1f} s\n"
        f"  training loss    {result.losses[0]:.3f} at the first step, {result.losses[-1]:.3f} at the last\n"
        f"  validation loss  {result.val_losses[-1]:.3f} (n-gram baseline {result.baseline_loss:.3f})\n"
        f"  run directory    {directory} ({series} series)"
    )
