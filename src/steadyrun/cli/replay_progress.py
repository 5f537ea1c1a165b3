"""Replay and experiments with progress bars, for `replay` and `demo`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from steadyrun.cli.messages import stderr

if TYPE_CHECKING:
    from steadyrun.replay.result import Replay


def replayed(
    path: Path,
    factory: str | None,
    step: int | None,
    threads: int | None,
    *,
    repeat: int = 3,
    rank: int | None = None,
) -> Replay:
    """Replay an incident, with a progress bar on stderr."""
    import steadyrun

    steadyrun.open_run(path)
    with Progress(
        TextColumn("replaying"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3g}"),
        TimeRemainingColumn(),
        console=stderr(),
        transient=True,
    ) as progress:
        shown = _shown_on(progress)
        return steadyrun.replay(path, factory, step=step, threads=threads, repeat=repeat, rank=rank, on_step=shown)


def _shown_on(progress: Progress) -> Callable[[int, int, float], None]:
    task = progress.add_task("", total=None, loss=float("nan"))

    def on_step(done: int, total: int, loss: float) -> None:
        progress.update(task, completed=done, total=total, loss=loss)

    return on_step


def explain(result: Replay, *, everything: bool, isolate: bool, jobs: int) -> None:
    """Find the cause by experiment, with a progress bar on stderr."""
    with Progress(
        TextColumn("experiments"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=stderr(),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=None)

        def on_row(done: int, total: int, words: str) -> None:
            progress.update(task, completed=done, total=total, description=words)

        result.explain(everything=everything, isolating=isolate, jobs=jobs, on_row=on_row)
