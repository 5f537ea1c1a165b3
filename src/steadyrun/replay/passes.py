"""The passes of a step with the random states of one rank's part of an incident."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.capture.step_boundary import Again, Boundary
from steadyrun.program.random_state import RandomState, put, take
from steadyrun.program.torch_compat import GENERATOR_HEAD, GENERATOR_WORDS
from steadyrun.replay.incident import Incident

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


class Passes:
    """Executes steps of one rank's part with its batches and random states."""

    def __init__(self, incident: Incident, model: torch.nn.Module, device: torch.device) -> None:
        self.incident = incident
        self.unaligned: set[int] = set()  # steps that draw before the forward pass from an unknown state
        self._model, self._device = model, device
        self._starts: dict[int, RandomState] = {}

    def run(self, step: int, batch: Any, execute: Callable[[int, Any], Any]) -> Any:
        """Call `execute` with the random states of a step, and its own batch or the given one."""
        while True:
            given = self.incident.batch(step, self._device) if batch is None else batch
            start = self.random(step)[0]
            put(start)
            boundary = Boundary(self._model, partial(self._arrived, step, start))
            boundary.arm()
            try:
                return execute(step, given)
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
