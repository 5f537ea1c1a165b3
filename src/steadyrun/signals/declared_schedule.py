"""The declared learning-rate schedule, and how the recorded rates differ from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from steadyrun.signals.curves import Floats, thinned

if TYPE_CHECKING:
    from steadyrun.signals.run_signals import LimitTable

Curve = Callable[[Floats], Floats]

_ENOUGH_POINTS = 5000  # more do not show more of a curve
_ENDLESS = 2**62  # steps of a schedule that never ends
_TRIES = 5  # offsets around the start of a step of the curve
# How many times per step a scheduler may be stepped, and once in how many steps.
_OFTEN = [float(n) for n in range(2, 65)]
_SELDOM = [1 / n for n in (*range(2, 65), 100, 128, 200, 256, 500, 512, 1000)]
_HORIZONS = np.geomspace(0.05, 20, 121)  # times the declared length
_ROUNDING = 1e-9

_SHAPES: dict[str, Callable[[Floats], Floats]] = {
    "cosine": lambda progress: (1 + np.cos(np.pi * progress)) / 2,
    "linear": lambda progress: 1 - progress,
    "constant": np.ones_like,
}

SCHEDULES = tuple(_SHAPES)
"""The schedules that a config may declare."""

# "linear warmup" does not define what follows the warmup, so it is not listed.
_SPELLINGS = {
    "cosine": "cosine",
    "cosine with warmup": "cosine",
    "warmup cosine": "cosine",
    "linear warmup cosine": "cosine",
    "cosine decay": "cosine",
    "linear": "linear",
    "linear with warmup": "linear",
    "linear decay": "linear",
    "constant": "constant",
    "constant with warmup": "constant",
    "warmup constant": "constant",
}


@dataclass(frozen=True)
class SchedulePlan:
    """A schedule: linear warmup to the peak, then a shape down to the minimum at the end."""

    shape: str
    peak: float
    floor: float
    warmup: int
    steps: int

    @property
    def decays(self) -> bool:
        return self.shape != "constant" and self.floor < self.peak

    def rate(self, at: Floats) -> Floats:
        """The rate at a step counted from 0; the first step of a warmup of W steps has 1/W of the peak, not 0."""
        progress = np.clip((at - self.warmup) / max(1, self.steps - self.warmup), 0, 1)
        decayed = self.floor + (self.peak - self.floor) * _SHAPES[self.shape](progress)
        rising = self.peak * (at + 1) / max(1, self.warmup)
        return np.where(at < self.warmup, rising, decayed)


def declared_plan(config: Mapping[str, Any], floor: float | None = None) -> SchedulePlan | None:
    """The schedule that the config declares; None if a part is missing or the shape is unknown.

    `floor` is used if lr_min is not declared.
    """
    shape = _shape(config.get("schedule", ""))
    peak, steps = number(config.get("lr_max")), number(config.get("total_steps"))
    warmup, declared_floor = number(config.get("warmup_steps", 0)), number(config.get("lr_min"))
    lowest = floor if declared_floor is None else declared_floor
    if shape == "constant":
        lowest, steps = peak, steps if steps is not None else float(_ENDLESS)
    if shape not in _SHAPES or peak is None or steps is None or warmup is None or lowest is None:
        return None
    if not (peak > 0 and 0 <= lowest <= peak and 0 <= warmup <= steps and steps >= 1):
        return None
    return SchedulePlan(shape, peak, lowest, int(warmup), int(steps))


def unknown_schedule(config: Mapping[str, Any]) -> str:
    """In words: the declared schedule is unknown, and which are known; "" if it is known or not declared."""
    declared = config.get("schedule")
    if not declared or _shape(declared):
        return ""
    return f"steadyrun does not know the declared schedule {str(declared)[:60]!r} (known: {', '.join(_SHAPES)})"


def _shape(declared: Any) -> str:
    return _SPELLINGS.get(re.sub(r"[^a-z]+", " ", str(declared).lower()).strip(), "")


def number(value: Any) -> float | None:
    """A finite number from the config; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def knot_curve(knots: Sequence[Sequence[float]]) -> Curve | None:
    """A piecewise-linear curve from recorded knots (step, rate)."""
    points = [(number(knot[0]), number(knot[1])) for knot in knots if len(knot) == 2]
    known = sorted((x, y) for x, y in points if x is not None and y is not None)
    if len(known) < 1:
        return None
    x, y = np.array(known, float).T
    return lambda at: np.interp(at, x, y)


def dry_run(inferred: Mapping[str, Any], group: str = "0") -> Curve | None:
    """The curve of the recorder's dry run of the scheduler, over scheduler steps."""
    expected = inferred.get("expected_lr")
    groups = expected.get("groups") if isinstance(expected, dict) else None
    if not isinstance(groups, list) or not groups:
        return None
    index = int(group) if group.isdecimal() and int(group) < len(groups) else 0
    return knot_curve(groups[index]) if isinstance(groups[index], list) else None


@dataclass(frozen=True)
class RateJump:
    """The largest change between neighbouring points that the expected curve does not make."""

    step: int
    before: float
    after: float
    size: float  # as a fraction of the peak


def largest_jump(steps: Floats, rates: Floats, expected: Floats, peak: float, slack: int) -> RateJump | None:
    """The largest unexpected jump; the expected curve may make it up to `slack` points earlier or later."""
    if len(rates) < 2 or peak <= 0:
        return None
    moved = np.diff(rates)
    meant = np.abs(np.diff(expected))
    around = np.max(np.stack([np.roll(meant, shift) for shift in range(-slack, slack + 1)]), axis=0)
    unexpected = np.maximum(0.0, np.abs(moved) - around)
    index = int(np.argmax(unexpected))
    return RateJump(
        int(steps[index + 1]), float(rates[index]), float(rates[index + 1]), float(unexpected[index]) / peak
    )


def distance(rates: Floats, expected: Floats, peak: float) -> float:
    """The mean distance of two curves as a fraction of the peak."""
    if not len(rates):
        return math.inf
    apart = float(np.mean(np.abs(rates - expected)))
    return apart / peak if peak > 0 else (math.inf if apart else 0.0)


def agreement(steps: Floats, rates: Floats, curve: Curve, peak: float, close: float) -> float:
    """The fraction of points within `close` (of the peak) of the curve, which may be two steps early or late."""
    if not len(steps):
        return 1.0
    steps, rates = _thin(steps, rates)
    off = np.min([np.abs(rates - curve(steps + shift)) for shift in (-2, -1, 0, 1, 2)], axis=0)
    return float(np.mean(off <= close * peak))


def stairs(steps: Floats, rates: Floats, curve: Curve, peak: float, limit: LimitTable) -> float | None:
    """The fraction of steps of a staircase curve that lie on `curve`; None if the rates are not a staircase.

    A rate set once per epoch is such a staircase. A step begins within `close` of the curve, at most `aside` away, and
    has at least `wide` rates.
    """
    changes = np.flatnonzero(np.diff(rates)) + 1
    if not len(changes) or len(changes) > len(rates) / limit["wide"]:
        return None
    width = float(steps[-1] - steps[0]) / (len(changes) + 1)
    around = [curve(steps[changes] + share * width) for share in np.linspace(-limit["aside"], limit["aside"], _TRIES)]
    return float(np.mean(np.min(np.abs(np.stack(around) - rates[changes]), axis=0) <= limit["close"] * peak))


def _thin(steps: Floats, rates: Floats) -> tuple[Floats, Floats]:
    kept = thinned(len(steps), _ENOUGH_POINTS)
    return steps[kept], rates[kept]


def time_factor(steps: Floats, rates: Floats, curve: Curve, peak: float) -> tuple[float, float]:
    """The factor f that brings `curve(f * step)` closest to `rates`, and the remaining distance."""
    steps, rates = _thin(steps, rates)
    # A scheduler stepped once per n batches does not change in between: compare with the floor of its count.
    counts = {f: np.floor(steps * f + _ROUNDING) if f < 1 else steps * f for f in (*_OFTEN, *_SELDOM)}
    distances = {f: distance(rates, curve(count), peak) for f, count in counts.items()}
    best = min(distances, key=lambda f: distances[f])
    return best, distances[best]


def horizon_factor(steps: Floats, rates: Floats, plan: SchedulePlan) -> tuple[float, float]:
    """The factor on the plan's length that brings it closest to `rates`, and the remaining distance."""
    steps, rates = _thin(steps, rates)
    plans = {float(f): replace(plan, steps=max(plan.warmup + 1, round(plan.steps * f))) for f in _HORIZONS}
    distances = {f: distance(rates, other.rate(steps), plan.peak) for f, other in plans.items()}
    best = min(distances, key=lambda f: distances[f])
    return best, distances[best]
