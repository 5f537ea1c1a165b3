"""`steadyrun demo`: train a small language model, healthy or with an engineered fault."""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from steadyrun.cli.messages import as_typed, fail, is_run, say, stderr
from steadyrun.cli.replay_progress import explain, replayed
from steadyrun.store.jsonio import replace_file
from steadyrun.store.run_summary import printable
from steadyrun.text import counted, shown

if TYPE_CHECKING:
    from torch import Tensor

    from steadyrun.report import Report
    from steadyrun.tutor.recipe import Recipe
    from steadyrun.tutor.train import OnStep, TrainResult


# After training: check, replay, post-mortem, dashboard, and the next commands.


def tell(directory: Path) -> list[str]:
    """Print the whole story of a run; return the next commands."""
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
    from steadyrun.report import phrases
    from steadyrun.report.summary import sections

    report = steadyrun.check(directory)
    typer.echo(f"\nCheck: {printable(phrases.verdict(report))}")
    for section in sections(report):
        if section.title not in {"next", "vital signs"}:
            typer.echo(printable(f"  {section.title}"))
            for label, text in section.lines:
                typer.echo(printable(f"    {label}: {text}" if label else f"    {text}"))
    return report


def _replay(directory: Path) -> int | None:
    """Replay the most severe incident and return its step, None if that failed."""
    from steadyrun.errors import SteadyrunError

    typer.echo("\nReplay of the most severe incident")
    try:
        result = replayed(directory, None, None, None)
        explain(result, everything=False, isolate=False, jobs=1)
    except SteadyrunError as problem:
        say(f"could not replay the incident: {problem}")
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
        say(f"could not write the post-mortem: {problem}")
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
    """Commands as the user types them, one per line."""
    return "\n".join(f"  {as_typed('steadyrun')} {line}" for line in words)


EXPERIMENTS = Path("experiments")
STEPS, RANK_STEPS = 2000, 600
SECONDS_BETWEEN_UPDATES = 0.1
_NOTHING_YET: dict[str, Any] = dict.fromkeys(("loss", "lr", "norm"), float("nan"))


def demo(
    fault: Annotated[str, typer.Argument(help="An engineered fault, or healthy; see --list.")] = "healthy",
    out: Annotated[
        Path | None,
        typer.Option(help="The run directory. Default: experiments/FAULT, with -2, -3, ... appended if it exists."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Number of optimizer steps, which is also the length of the schedule. Default: 2000; 200 for "
            "fine-tuning and policies; 600 with --ranks."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and of the order of the data.")] = 42,
    remedy: Annotated[
        bool, typer.Option("--remedy", help="Train the same program with the fault fixed, into FAULT-remedied.")
    ] = False,
    ranks: Annotated[
        int, typer.Option(min=1, max=64, help="Number of processes, which train together with DDP over gloo.")
    ] = 1,
    list_faults: Annotated[bool, typer.Option("--list", help="List all faults and exit.")] = False,
    train_only: Annotated[
        bool, typer.Option("--train-only", help="Only train and record; skip check, replay and post-mortem.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run in --out.")] = False,
) -> None:
    """Train a mini-GPT, with a mistake built in if you like, and find the mistake.

    \b
    Examples:
      steadyrun demo                        healthy, in experiments/healthy
      steadyrun demo rare-token-spike       a spike, its cause, its post-mortem
      steadyrun demo --list                 the faults to choose from
      steadyrun demo no-warmup --steps 300  a short run with a fault
      steadyrun demo --seed 7 --out runs/7  another seed, another folder
      steadyrun demo rare-token-spike --remedy  the fault fixed
      steadyrun demo flipped-advantage      a policy that unlearns
      steadyrun demo --ranks 2 past-ddp     two processes that never average

    It trains on English verb sentences, checks the run, replays an incident,
    finds its cause by experiment, and writes the post-mortem and the
    dashboard. Training takes less than a minute on two CPU cores, the rest
    another. It needs torch and tokenizers (the extra "tutor").

    \b
    Exit codes: 0 trained, 2 bad input, 130 stopped with Ctrl-C.
    """
    _require_tutor()
    if list_faults:
        _print_faults()
        return
    if ranks > 1:
        _demo_of_ranks(fault, out, RANK_STEPS if steps is None else steps, seed, ranks, remedy, train_only, force)
        return
    recipe = _recipe(fault, _usual_steps(fault) if steps is None else steps, seed, remedy)
    name = f"{fault}-remedied" if remedy else fault
    directory = _directory(name, out, force)
    try:
        result = _train(fault, recipe, directory)
    except KeyboardInterrupt:
        _stopped(directory)
    _summarise(name, result, directory)
    more = [] if train_only else tell(directory)
    _next(fault, directory, more, remedied=remedy, explained=not train_only)


def _directory(name: str, out: Path | None, force: bool) -> Path:
    """The new folder of a run."""
    directory = _first_free(EXPERIMENTS / name) if out is None else _vacate(out.expanduser(), force)
    _create(directory)
    return directory


def _stopped(directory: Path) -> NoReturn:
    say(f"stopped with Ctrl-C; the recording so far is in {directory}")
    raise typer.Exit(130) from None


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
    from steadyrun.tutor.faults.ranks import RANK_FAULTS
    from steadyrun.tutor.faults.tuning import TUNING_FAULTS

    width = max(map(len, FAULTS))
    for title, faults in (("", FAULTS), ("\nFine-tuning and policies", TUNING_FAULTS)):
        if title:
            typer.echo(title)
        for name, fault in faults.items():
            typer.echo(f"{name:<{width}}  {fault.leaf or fault.note or '-':<4}  {fault.summary}")
    typer.echo("\nSeveral processes (--ranks 2)")
    for name, of_ranks in RANK_FAULTS.items():
        typer.echo(f"{name:<{width}}  {of_ranks.leaf or '-':<4}  {of_ranks.summary}")


def _usual_steps(fault: str) -> int:
    from steadyrun.tutor.faults.tuning import TUNING_FAULTS

    return TUNING_FAULTS[fault].steps if fault in TUNING_FAULTS else STEPS


def _recipe(fault: str, steps: int, seed: int, remedy: bool) -> Recipe:
    from steadyrun.tutor.faults import OF_ONE_PROCESS, load_recipe
    from steadyrun.tutor.faults.ranks import RANK_FAULTS

    if fault in RANK_FAULTS and fault not in OF_ONE_PROCESS:
        fail(f"{fault} is a fault of several processes", f"type: {as_typed('steadyrun')} demo --ranks 2 {fault}")
    clip = _clip_of(EXPERIMENTS / fault, steps, seed) if remedy else None
    try:
        return load_recipe(fault, remedied=remedy, steps=steps, seed=seed, **({} if clip is None else {"clip": clip}))
    except ValueError as error:
        fail(str(error), f"see: steadyrun demo {'--help' if fault in OF_ONE_PROCESS else '--list'}")


def _clip_of(run: Path, steps: int, seed: int) -> float | None:
    """The clip threshold that the faulty run's gradient norms suggest; None if there is no such run."""
    import steadyrun

    if not is_run(run):
        say(f"{run} does not exist, so the default clip threshold is used")
        return None
    view = steadyrun.open_run(run)
    declared = view.manifest.get("config", {})
    if (declared.get("seed"), declared.get("total_steps")) != (seed, steps):
        say(f"{run} has another seed or length, so the default clip threshold is used")
        return None
    clip = steadyrun.suggest_clip(view)
    say(f"clip threshold {clip:g}, from the gradient norms of {run} before its incident")
    return clip


def _first_free(path: Path) -> Path:
    """`path`, or the first of `path`-2, `path`-3, ... that does not exist yet."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def _vacate(out: Path, force: bool) -> Path:
    """`out`, once a new run would not overwrite anything in it."""
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

    from steadyrun.tutor.faults import OF_ONE_PROCESS
    from steadyrun.tutor.train import train_recorded

    # Tensors this small gain little from a second thread, and on a busy machine threads that wait for each
    # other cost much more. One thread also means the same order of summation on every machine.
    torch.set_num_threads(1)
    config = recipe.config
    what = f"{fault}, with the fault fixed" if recipe.remedied else f"{fault}: {OF_ONE_PROCESS[fault].summary}"
    say(f"{what}\n{config.steps} steps, warmup {config.warmup_steps}, seed {config.seed}, into {directory}")
    with _progress() as progress:
        return train_recorded(recipe, directory, _show_steps(progress, config.steps))


# Several processes.


def _demo_of_ranks(
    fault: str, out: Path | None, steps: int, seed: int, ranks: int, remedy: bool, train_only: bool, force: bool
) -> None:
    from steadyrun.tutor.faults.ranks import RANK_FAULTS, load_rank_recipe

    if remedy:
        fail("--remedy is for faults of one process", f"type: {as_typed('steadyrun')} demo --ranks {ranks}")
    try:
        load_rank_recipe(fault, steps=steps, seed=seed)
    except ValueError as error:
        fail(str(error), "see: steadyrun demo --list")
    directory = _directory(f"healthy-{ranks}-ranks" if fault == "healthy" else fault, out, force)
    say(f"{fault}: {RANK_FAULTS[fault].summary}\n{ranks} processes, {steps} steps, seed {seed}, into {directory}")
    try:
        _launch(fault, directory, ranks, steps, seed)
    except KeyboardInterrupt:
        _stopped(directory)
    if not train_only:
        _leaf(directory)
        typer.echo(f"\nWritten\n  dashboard    {_dashboard(directory)}")
    run = shlex.quote(str(directory))
    following = "past-ddp" if fault == "healthy" else "healthy"
    lines = [
        f"check {run}",
        *([f"replay {run}"] if any((directory / "incidents").glob("step-*/**/incident.json")) else []),
        f"dashboard {run} --open",
        f"top {run}",
        "demo --list",
        f"demo --ranks {ranks} {following}",
    ]
    typer.echo(f"\nNext:\n{commands(lines)}")


def _launch(fault: str, directory: Path, ranks: int, steps: int, seed: int) -> None:
    from steadyrun.cli.demo_ranks import launch

    with _progress() as progress:
        task = progress.add_task("", total=steps, **_NOTHING_YET)
        for now in launch(fault, directory, ranks, steps, seed):
            progress.update(task, completed=int(now["step"]) + 1, loss=now["loss"], lr=now["lr"], norm=now["norm"])


def _progress() -> Progress:
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  lr {task.fields[lr]:.1e}  grad norm {task.fields[norm]:.2f}"),
        TimeRemainingColumn(),
        console=stderr(),
    )


def _show_steps(progress: Progress, steps: int) -> OnStep:
    """A callback that updates the bar ten times a second, because reading a tensor waits for the device."""
    task = progress.add_task("", total=steps, **_NOTHING_YET)
    due = 0.0

    def on_step(step: int, loss: Tensor, lr: float, grad_norm: Tensor) -> None:
        nonlocal due
        if time.monotonic() >= due or step + 1 == steps:
            due = time.monotonic() + SECONDS_BETWEEN_UPDATES
            progress.update(task, completed=step + 1, loss=float(loss), lr=lr, norm=float(grad_norm))

    return on_step


def _next(fault: str, directory: Path, more: list[str], *, remedied: bool, explained: bool) -> None:
    """Print the next commands."""
    from steadyrun.tutor.faults import OF_ONE_PROCESS

    run = shlex.quote(str(directory))
    lines = [f"check {run}", f"dashboard {run} --open", *more, "demo --list"]
    if not remedied and OF_ONE_PROCESS[fault].remedy is not None:
        lines.insert(len(lines) - 1, f"demo {fault} --remedy")
    lines.append(f"demo {'rare-token-spike' if fault == 'healthy' or not explained else 'healthy'}")
    typer.echo(f"\nNext:\n{commands(lines)}")


def _summarise(fault: str, result: TrainResult, directory: Path) -> None:
    import steadyrun

    series = len(steadyrun.open_run(directory).names())
    validation = ""
    if result.val_losses:
        baseline = f" (n-gram baseline {shown(result.baseline_loss)})" if result.baseline_loss else ""
        validation = f"  validation loss  {shown(result.val_losses[-1])}{baseline}\n"
    typer.echo(
        f"{fault}: {counted(len(result.losses), 'step')} in {shown(result.seconds)} s\n"
        f"  training loss    {shown(result.losses[0])} at the first step, {shown(result.losses[-1])} at the last\n"
        f"{validation}"
        f"  run directory    {directory} ({series} series)"
    )
