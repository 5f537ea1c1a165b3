"""A task at an incident's checkpoint, ready to execute its steps."""

from __future__ import annotations

from typing import Any

import torch

from steadyrun.errors import RunDirectoryError
from steadyrun.incidents import state as training
from steadyrun.incidents.boundary import Boundary
from steadyrun.incidents.randomness import put
from steadyrun.incidents.reading import Incident
from steadyrun.incidents.stepping import Stepper
from steadyrun.incidents.task import Task


class Session:
    """A task at the incident's checkpoint, executed step by step; state can be remembered and restored."""

    def __init__(self, incident: Incident, task: Task, threads: int | None = None) -> None:
        if incident.missing:
            raise RunDirectoryError(f"{incident.folder} cannot be replayed: {incident.missing}")
        self.incident, self.task = incident, task
        self.stepper = Stepper(task, incident)
        self.device = next((p.device for p in task.model.parameters()), torch.device("cpu"))
        wanted = incident.checkpoint.get("flags", {}).get("threads") if threads is None else threads
        if isinstance(wanted, int) and wanted > 0:
            torch.set_num_threads(wanted)
        self.rewind()

    @property
    def objects(self) -> training.Objects:
        task = self.task
        return training.Objects(task.model, task.optimizers, task.scheduler, task.scaler, task.loader)

    def rewind(self) -> None:
        """To the checkpoint."""
        tree, tensors = self.incident.state
        training.restore(self.objects, tree, tensors)

    def execute(self, step: int, batch: Any = None) -> Any:
        """One step, with its random states and its own batch or the given one."""
        given = self.incident.batch(step, self.device) if batch is None else batch
        before, forward = self.incident.random(step)
        boundary = Boundary(self.objects.model, lambda _args: put(forward))
        put(before)
        boundary.arm()
        try:
            return self.stepper.run(step, given)
        finally:
            boundary.disarm()
