"""How a model is run: how often each of its parts is called, and how many tensors it is given.

Training with the true previous values and validation with the model's own differ in one of them, unless a program hides
it inside of its forward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from steadyrun.program.containers import leaves


@dataclass
class PassCalls:
    """Calls of the modules with parameters by their ids, and the fewest tensors that a pass was given."""

    calls: Counter[int] = field(default_factory=Counter)
    given: int | None = None

    def take_in(self, other: PassCalls) -> None:
        self.calls += other.calls
        if other.given is not None:
            self.given = other.given if self.given is None else min(self.given, other.given)


def tensors_in(args: object, kwargs: object) -> int:
    return sum(isinstance(leaf, Tensor) for leaf in leaves([args, kwargs]))


def beside(trained: PassCalls, validated: PassCalls, names: Mapping[int, str]) -> dict[str, float | str]:
    """Validation beside training: the tensors given, and how unevenly the parts run more often, with the one in front.

    Parts that only one of both uses, such as an auxiliary head, do not count.
    """
    facts: dict[str, float | str] = {}
    if trained.given is not None and validated.given is not None:
        facts |= {"given": validated.given, "given_in_training": trained.given}
    times = {key: validated.calls[key] / count for key, count in trained.calls.items() if validated.calls[key]}
    if times:
        most = max(times, key=lambda key: times[key])
        facts |= {"uneven": times[most] / min(times.values()), "part": names.get(most, "")}
    return facts
