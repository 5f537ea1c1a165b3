"""A task at an incident's checkpoint, ready to execute its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.capture.step_boundary import Again, Boundary
from steadyrun.errors import RunDirectoryError, UsageError
from steadyrun.probes.problems import say
from steadyrun.program import snapshot as training
from steadyrun.program.program_state import untouched
from steadyrun.program.random_state import RandomState, put, take
from steadyrun.program.task import Task
from steadyrun.program.torch_compat import GENERATOR_HEAD, GENERATOR_WORDS
from steadyrun.replay.incident import Incident
from steadyrun.replay.step_execution import Stepper

if TYPE_CHECKING:
    from steadyrun.replay.result import Replay

# The random state at which a step began, if both the loop and the step draw numbers before the forward pass.
#
# Captured are the states at the end of the previous step and before the forward pass. In between a shuffling loader may
# draw, and then the loss function (the noise of a diffusion model). Running the step shows how many numbers it draws;
# it began that many draws before the forward pass. The caller checks that the answer leads to the captured state.


_MOST = 20_000  # blocks of words: 12 million numbers


def began(before: Tensor, now: Tensor, forward: Tensor) -> Tensor | None:
    """The state from which as many draws as from `before` to `now` lead to `forward`; None if not found."""
    whole, own = _between(before, forward), _between(before, now)
    if whole is None or own is None or not 0 < own < whole:
        return None
    generator = torch.Generator()
    generator.set_state(before)
    _draw(generator, whole - own)
    state = generator.get_state()
    state[GENERATOR_HEAD + GENERATOR_WORDS :] = forward[
        GENERATOR_HEAD + GENERATOR_WORDS :
    ]  # the cached Gaussian, which most draws do not touch
    return state


def _between(first: Tensor, last: Tensor) -> int | None:
    """The number of words that the generator draws between two of its states."""
    generator = torch.Generator()
    generator.set_state(first)
    count, target = 0, _words(last)
    for _ in range(_MOST):
        state = generator.get_state()
        if torch.equal(_words(state), target) and _place(state) <= _place(last):
            return count + _place(last) - _place(state)
        count += _draw(generator, _left(state))
    return None


def _draw(generator: torch.Generator, count: int) -> int:
    torch.empty(count, dtype=torch.int32).random_(generator=generator)
    return count


def _words(state: Tensor) -> Tensor:
    return state[GENERATOR_HEAD : GENERATOR_HEAD + GENERATOR_WORDS]


def _left(state: Tensor) -> int:
    """Draws until and including the next block of words."""
    return int(state[8:12].view(torch.int32))


def _place(state: Tensor) -> int:
    return int(state[16:24].view(torch.int64))


Record = Callable[..., Any]
"""`steadyrun.record`, passed in from a higher layer: a replay is recorded like the run."""


class Session:
    """A task at the incident's checkpoint, run step by step; its state can be saved and restored."""

    def __init__(self, incident: Incident, task: Task, record: Record, threads: int | None = None) -> None:
        if incident.missing:
            raise RunDirectoryError(f"{incident.folder} cannot be replayed: {incident.missing}")
        self.incident, self.task, self.record = incident, task, record
        self.built = take()  # the random states after the factory: a shuffling loader continues from them
        self.stepper = Stepper(task, incident)
        self.unaligned: set[int] = set()  # steps that draw before the forward pass from an unknown state
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
        """Restore the checkpoint."""
        tree, tensors = self.incident.state
        training.restore(self.objects, tree, tensors)

    def execute(self, step: int, batch: Any = None) -> Any:
        """Run one step with its random states and its own batch or the given one."""
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
        """The random states at the start of a step and of its forward pass."""
        before, forward = self.incident.random(step)
        return self._starts.get(step, before), forward

    def _arrived(self, step: int, start: RandomState, _args: Any) -> None:
        """The forward pass begins: restore its random states, and check those of the draws before it."""
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
    """The generators whose states differ."""
    same = {
        "torch": torch.equal(one.torch, other.torch),
        "random": _same(one.python, other.python),
        "numpy": _same(one.numpy, other.numpy),
    }
    return {name for name, equal in same.items() if not equal}


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


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
    from steadyrun.replay.investigation import investigate

    threads = torch.get_num_threads()
    with untouched(task):
        try:
            session = Session(choose(path, step), task, record, options.pop("threads", threads))
            return investigate(session, **options)
        finally:
            torch.set_num_threads(threads)
