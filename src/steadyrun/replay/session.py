"""A task at an incident's checkpoint, ready to execute its steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.probes.problems import say
from steadyrun.program import snapshot as training
from steadyrun.program.program_state import untouched
from steadyrun.program.random_state import RandomState, take
from steadyrun.program.task import Task
from steadyrun.replay.averaged_step import AveragedStep, ranks_of
from steadyrun.replay.incident import Incident
from steadyrun.replay.passes import Passes
from steadyrun.replay.step_execution import Stepper

if TYPE_CHECKING:
    from steadyrun.replay.result import Replay

Record = Callable[..., Any]
"""`steadyrun.record`, passed in from a higher layer: a replay is recorded like the run."""


class Session:
    """A task at the incident's checkpoint, run step by step; its state can be saved and restored.

    If all ranks of a DistributedDataParallel run kept their part, a step executes every rank's batch and averages the
    gradients, as the run did.
    """

    def __init__(self, incident: Incident, task: Task, record: Record, threads: int | None = None) -> None:
        self.ranks, self.alone = ranks_of(incident, task)  # the other ranks; or why their gradients are not there
        if incident.missing:
            raise RunDirectoryError(f"{incident.folder} cannot be replayed: {incident.missing}")
        self.incident, self.task, self.record = incident, task, record
        self.built = take()  # the random states after the factory: a shuffling loader continues from them
        self.stepper = Stepper(task, incident)
        self.device = next((p.device for p in task.model.parameters()), torch.device("cpu"))
        wanted = incident.checkpoint.get("flags", {}).get("threads") if threads is None else threads
        if isinstance(wanted, int) and wanted > 0:
            torch.set_num_threads(wanted)
        self._own = Passes(incident, self.objects.model, self.device)
        model = self.objects.model
        self._average = AveragedStep(self.stepper, model, self.device, self.ranks) if self.ranks else None
        self.rewind()

    @property
    def objects(self) -> training.Objects:
        task = self.task
        return training.Objects(task.model, task.optimizers, task.scheduler, task.scaler, task.loader)

    def rewind(self) -> None:
        """Restore the checkpoint."""
        tree, tensors = self.incident.state
        training.restore(self.objects, tree, tensors)

    def execute(self, step: int, batch: Any = None) -> Any:
        """Run one step with its random states and its own batch or the given one."""
        if self._average is not None:
            return self._average.run(step, batch, self._own)
        return self._own.run(step, batch, self.stepper.run)

    def other_losses(self) -> dict[int, dict[int, float]]:
        """The losses of the other ranks in the last execution of each step, by rank."""
        return {} if self._average is None else {rank: dict(losses) for rank, losses in self._average.losses.items()}

    def random(self, step: int) -> tuple[RandomState, RandomState]:
        """The random states at the start of a step and of its forward pass."""
        return self._own.random(step)

    @property
    def unaligned(self) -> set[int]:
        """Steps that draw before the forward pass from an unknown state."""
        return self._own.unaligned


# `run.replay()`: the objects of the running program return to the incident and are restored afterwards.


def replay_live(
    path: Path,
    program: Callable[[], tuple[Any, ...]] | None,
    step: int | None,
    record: Record,
    train_step: Any | None = None,
    **options: Any,
) -> Replay | None:
    """Replay an incident of the run at `path` in its own process; print a line and return None if it has none.

    The objects must not have hooks.
    """
    from steadyrun.replay.incident import readable_incidents

    model, optimizers, scheduler, scaler, loss_fn = (None,) * 5 if program is None else program()
    if model is None or not optimizers or loss_fn is None:
        raise UsageError(
            "run.replay needs the model, optimizer and loss_fn that were given to run.watch; they are missing, or no "
            "longer exist after run.close(). Build them and call "
            "steadyrun.replay(run.path, steadyrun.Task(model, optimizer, loss_fn))"
        )
    if step is None and readable_incidents(path) == ([], []):
        say(f"run.replay: {path} has no incident to replay yet; run.incident(why) captures one")
        return None
    task = Task(model, optimizers if len(optimizers) > 1 else optimizers[0], loss_fn, scheduler, scaler, train_step)
    return replay_task(path, task, step, record, **options)


def replay_task(path: Path, task: Task, step: int | None, record: Record, **options: Any) -> Replay:
    """Replay an incident of the run at `path` with the objects of a task, which are as before afterwards."""
    from steadyrun.replay.incident import choose
    from steadyrun.replay.investigation import TIMES, checked_times, investigate

    threads = torch.get_num_threads()
    with untouched(task):
        try:
            incident = choose(path, step, options.pop("rank", None))
            session = Session(incident, task, record, options.pop("threads", threads))
            return investigate(session, times=checked_times(options.pop("repeat", TIMES)), **options)
        finally:
            torch.set_num_threads(threads)
