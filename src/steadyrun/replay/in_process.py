"""`run.replay()`: the objects of the running program go back to the moment, and are as before afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from steadyrun.errors import UsageError
from steadyrun.probes.problems import say
from steadyrun.program import snapshot as training
from steadyrun.program.random_state import put, take
from steadyrun.program.task import Task
from steadyrun.replay.session import Record, Session

if TYPE_CHECKING:
    from steadyrun.replay.result import Replay


def replay_live(
    path: Path,
    program: Callable[[], tuple[Any, ...]] | None,
    step: int | None,
    record: Record,
    train_step: Any | None = None,
    **options: Any,
) -> Replay | None:
    """Replay an incident of the run at `path` in its own process; None, and a line that says so, if it has none.

    Nothing must be hooked to the objects.
    """
    from steadyrun.replay.incident import choose, readable_incidents
    from steadyrun.replay.investigation import investigate

    model, optimizers, scheduler, scaler, loss_fn = (None,) * 5 if program is None else program()
    if model is None or not optimizers or loss_fn is None:
        raise UsageError(
            "run.replay executes with the model, optimizer and loss_fn given to run.watch, and they were not given or, "
            "after run.close(), no longer exist. Build them and call "
            "steadyrun.replay(run.path, steadyrun.Task(model, optimizer, loss_fn))"
        )
    if step is None and readable_incidents(path) == ([], []):
        say(f"run.replay: {path} has no incident so far, so nothing is replayed; run.incident(why) makes one")
        return None
    task = Task(model, optimizers if len(optimizers) > 1 else optimizers[0], loss_fn, scheduler, scaler, train_step)
    objects = training.Objects(model, optimizers, scheduler, scaler)
    gradients = [parameter.grad for parameter in model.parameters()]
    random, threads, before = take(devices=_devices(model)), torch.get_num_threads(), training.remember(objects)
    try:
        session = Session(choose(path, step), task, record, options.pop("threads", threads))
        return investigate(session, **options)
    finally:
        training.restore(objects, before.tree, before.tensors)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        torch.set_num_threads(threads)
        put(random)


def _devices(model: torch.nn.Module) -> list[int]:
    return sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
