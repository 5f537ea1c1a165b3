"""Where among the random numbers a step began, if the loop drew some first and the step itself before its forward pass.

Kept are the states at the end of the step before and before the forward pass. In between a loader that shuffles may
draw, and then the loss function (the noise of a diffusion model). How many numbers the step draws is seen when it is
executed: so many before the forward pass it began. Whoever uses the answer checks that it leads to the kept state.
"""

from __future__ import annotations

import torch
from torch import Tensor

from steadyrun.program.torch_compat import GENERATOR_HEAD, GENERATOR_WORDS

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
