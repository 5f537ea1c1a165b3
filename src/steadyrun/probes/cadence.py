"""How often each probe measures."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from steadyrun.errors import UsageError

DEFAULTS: Mapping[str, int] = {
    "activations": 50,  # mean magnitude and standard deviation of every block's output
    "blocks": 100,  # gradient and parameter norm per block, update-to-weight ratio
    "moments": 100,  # norms of the optimizer's moments, its step count
    "spectral": 100,  # largest singular value of every large matrix
    "dead_units": 100,  # FFN units that are silent on the whole batch
    "attention": 100,  # entropy per head, dead heads
    "modes": 50,  # modules in evaluation mode during a training step
    "objective": 50,  # what the loss is made of, which parameters it reaches, how targets align with inputs
    "digests": 50,  # with several processes: what their gradients, parameters and states are compared by
    "system": 50,  # memory, GPU utilisation and temperature
    "histograms": 0,  # activations, gradients and weights by power of two; off unless asked for
}

# The first steps of an attempt show the most (a bad start, a bad resume) and are few.
EARLY = frozenset({0, 1, 2, 5, 10, 19})

_NEVER = 2**62
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cadence:
    """Steps between two samples of each probe; 0 switches a probe off."""

    every: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULTS))
    first_step: int = 0

    def due(self, step: int) -> frozenset[str]:
        """The probes that measure at `step`."""
        early = step - self.first_step in EARLY
        if not early and (self._common == 0 or step % self._common):
            return _NOTHING
        return frozenset(probe for probe, every in self.every.items() if every and (early or step % every == 0))

    def parts(self, probe: str, step: int, count: int) -> list[int]:
        """Which of the `count` parts of a probe measure at `step`: each at its own step of a period, early all."""
        every = self.every[probe]
        if not every or not count:
            return []
        if step - self.first_step in EARLY:
            return list(range(count))
        turn = step % every
        return [part for part, own in enumerate(_turns(every, count)) if own == turn]

    def next_sample(self, step: int, spectral_parts: int) -> int:
        """The first step after `step` at which anything is due; nothing but these steps needs a closer look."""
        coming = [self.first_step + early for early in EARLY if self.first_step + early > step]
        if self._common:
            coming.append(step + self._common - step % self._common)
        if every := self.every["spectral"]:
            coming += [step + 1 + (turn - step - 1) % every for turn in set(_turns(every, spectral_parts))]
        return min(coming, default=_NEVER)

    @cached_property
    def _common(self) -> int:
        """Only multiples of this can be a multiple of any cadence."""
        return math.gcd(*self.every.values())


def _turns(every: int, count: int) -> list[int]:
    """At which step of a period of `every` steps each of `count` parts is measured."""
    return [part * every // count for part in range(count)]


def parse_cadence(every: int | Mapping[str, int] | None) -> Mapping[str, int]:
    """`every=` as the user gave it: one number for all sampled probes, or a number per probe."""
    if every is None:
        return dict(DEFAULTS)
    if isinstance(every, Mapping):
        for name in every:
            if name not in DEFAULTS:
                raise UsageError(_unknown(str(name)))
        return {**DEFAULTS, **{name: _count(name, value) for name, value in every.items()}}
    everything = _count("all probes", every)
    return {name: everything if default else 0 for name, default in DEFAULTS.items()}


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(
            f"every: {name} must be a whole number of steps, 0 to switch it off, not {value!r}. "
            "Example: every={'activations': 10}"
        )
    return value


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, DEFAULTS, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"every: there is no probe {name!r}.{hint} The probes are {', '.join(DEFAULTS)}."
