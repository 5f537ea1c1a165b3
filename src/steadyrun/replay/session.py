"""A task at an incident's checkpoint, ready to execute its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from steadyrun.capture.step_boundary import Again, Boundary
from steadyrun.errors import RunDirectoryError
from steadyrun.program import snapshot as training
from steadyrun.program.random_state import RandomState, put, take
from steadyrun.program.task import Task
from steadyrun.replay.incident import Incident
from steadyrun.replay.rng_alignment import began
from steadyrun.replay.step_execution import Stepper

Record = Callable[..., Any]
"""`steadyrun.record`, of a room above this one: what is executed again is recorded as it was the first time."""


class Session:
    """A task at the incident's checkpoint, executed step by step; state can be remembered and restored."""

    def __init__(self, incident: Incident, task: Task, record: Record, threads: int | None = None) -> None:
        if incident.missing:
            raise RunDirectoryError(f"{incident.folder} cannot be replayed: {incident.missing}")
        self.incident, self.task, self.record = incident, task, record
        self.built = take()  # the random states that the factory left: a loader that shuffles goes on from them
        self.stepper = Stepper(task, incident)
        self.unaligned: set[int] = set()  # steps that draw before the forward pass, from a state that is not known
        self._starts: dict[int, RandomState] = {}
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
        while True:
            given = self.incident.batch(step, self.device) if batch is None else batch
            start = self.random(step)[0]
            put(start)
            boundary = Boundary(self.objects.model, partial(self._arrived, step, start))
            boundary.arm()
            try:
                return self.stepper.run(step, given)
            except Again:
                continue
            finally:
                boundary.disarm()

    def random(self, step: int) -> tuple[RandomState, RandomState]:
        """The random states with which a step begins, and its forward pass."""
        before, forward = self.incident.random(step)
        return self._starts.get(step, before), forward

    def _arrived(self, step: int, start: RandomState, _args: Any) -> None:
        """The forward pass begins: it gets its own random states, and what was drawn before it must have had them."""
        (before, forward), now = self.incident.random(step), take()
        astray = _moved(start, now) & _moved(now, forward)
        if astray:
            state = began(before.torch, now.torch, forward.torch) if astray == {"torch"} else None
            if state is not None and step not in self._starts:
                self._starts[step] = replace(before, torch=state)
                raise Again
            self._starts.pop(step, None)
            self.unaligned.add(step)
        put(forward)


def _moved(one: RandomState, other: RandomState) -> set[str]:
    """The generators that have drawn between two states."""
    same = {
        "torch": torch.equal(one.torch, other.torch),
        "random": _same(one.python, other.python),
        "numpy": _same(one.numpy, other.numpy),
    }
    return {name for name, equal in same.items() if not equal}


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))
