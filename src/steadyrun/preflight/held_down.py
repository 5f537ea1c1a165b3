"""Whether one setting, not the learning rate, makes updates too small to learn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.short_training import FAR_ABOVE, STEPS, Sweep, from_scratch, sweep, trained
from steadyrun.questions.form import Limits
from steadyrun.signals.missing import NotApplicable
from steadyrun.text import shown


@dataclass(frozen=True)
class Trial:
    """The unchanged program at several learning rates, and its last loss at its own rate without the setting."""

    seen: Sweep
    end: float

    @property
    def own(self) -> float:
        return self.seen.falls[1.0]

    @property
    def without(self) -> float:
        return self.seen.fall(self.end)

    def held_down(self, limit: Limits) -> bool:
        """Whether it learns without the setting, and with it only at a far larger learning rate or not at all.

        A deliberate choice does not cost that much.
        """
        if self.without <= limit["learns"]:
            return False
        nothing = self.own < limit["nothing"] * self.without and self.seen.falls[FAR_ABOVE] < self.without
        return nothing or self.seen.learns_far_above_alone(limit)

    def words(self, instead: str) -> str:
        return (
            f"In {STEPS} steps the loss goes from {shown(self.seen.start)} to {shown(self.seen.ends[1.0])}, and to "
            f"{shown(self.end)} {instead}"
        )


def tried_without(bench: Bench, *, clip: float | None = None, epsilon: float | None = None) -> Trial:
    """Train a few steps at the program's own learning rate with another clip threshold or epsilon."""
    seen = sweep(bench)
    if not from_scratch(bench, seen.start):
        raise NotApplicable("only random initial weights must learn at once, and these are not known to be random")
    end = trained(bench, seen.rates, 1.0, clip=clip, epsilon=epsilon)
    return Trial(seen, end)


def gradient_size(bench: Bench) -> tuple[float, float]:
    """The norm and the root mean square of the first gradient."""
    gradients = [gradient for gradient in bench.first_pass().gradients.values() if not gradient.is_sparse]
    square = sum(float(gradient.double().square().sum()) for gradient in gradients)
    count = sum(gradient.numel() for gradient in gradients)
    if not count or not math.isfinite(square) or not square:
        raise NotApplicable("the first gradient is zero or not finite")
    return math.sqrt(square), math.sqrt(square / count)
