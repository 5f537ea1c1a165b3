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

# Where among the random numbers a step began, if the loop drew some first and the step itself before its forward pass.
#
# Kept are the states at the end of the step before and before the forward pass. In between a loader that shuffles may
# draw, and then the loss function (the noise of a diffusion model). How many numbers the step draws is seen when it is
# executed: so many before the forward pass it began. Whoever uses the answer checks that it leads to the kept state.


_MOST = 20_000  # blocks of words: 12 million numbers


def began(before: Tensor, now: Tensor, forward: Tensor) -> Tensor | None:
    """The state from which the draws that led from `before` to `now` lead to `forward`; None where it is not found."""
    whole, own = _between(before, forward), _between(before, now)
    if whole is None or own is None or not 0 < own < whole:
        return None
    generator = torch.Generator()
    generator.set_state(before)
    _draw(generator, whole - own)
    state = generator.get_state()
    state[GENERATOR_HEAD + GENERATOR_WORDS :] = forward[
        GENERATOR_HEAD + GENERATOR_WORDS :
    ]  # a Gaussian that is held back: what most draws leave alone
    return state


def _between(first: Tensor, last: Tensor) -> int | None:
    """How many words of the generator lie between two of its states."""
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
    """Draws until the next block of words is made, that one included."""
    return int(state[8:12].view(torch.int32))


def _place(state: Tensor) -> int:
    return int(state[16:24].view(torch.int64))


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


# `run.replay()`: the objects of the running program go back to the moment, and are as before afterwards.


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
    from steadyrun.replay.incident import readable_incidents

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
