"""The learning-rate curve the scheduler would give, found by running a copy of it on a stand-in optimizer."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import dataclass
from typing import Any

import torch

_UNKNOWN = "unknown"
_SECONDS = 1.0
_RESOLUTION = 1e-4  # of the largest rate: knots are kept so that straight lines between them are this close


@dataclass(frozen=True)
class ExpectedRates:
    """Learning rate per *scheduler* step and param group, as knots of a piecewise-linear curve."""

    source: str
    steps: int
    groups: tuple[tuple[tuple[int, float], ...], ...]
    why: str = ""


class _StandIn(torch.optim.Optimizer):
    """One scalar per param group; all the groups' numbers (initial_lr, betas, momentum …) kept."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        scalars = [{**group, "params": [torch.zeros((), requires_grad=True)]} for group in groups]
        super().__init__(scalars, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        return None


def steps_taken(scheduler: Any) -> float | None:
    """How often the scheduler was stepped, None where it does not say."""
    counted = getattr(scheduler, "last_epoch", None)
    parts = getattr(scheduler, "_schedulers", None)  # ChainedScheduler has no count of its own
    if counted is None and parts:
        return steps_taken(parts[0])
    return float(counted) if isinstance(counted, int) else None


def expected_rates(scheduler: Any, optimizer: Any, model: Any, steps: int) -> ExpectedRates:
    """Dry-run `scheduler` for `steps` steps from its present state."""
    name = type(scheduler).__name__
    if hasattr(scheduler, "num_bad_epochs"):
        return ExpectedRates(_UNKNOWN, 0, (), f"{name} follows a metric, so its curve cannot be known ahead")
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    stand_in = _StandIn(copy.deepcopy(groups))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            double = copy.deepcopy(scheduler, {id(optimizer): stand_in, id(model): model})
            curve = _run(double, stand_in, steps)
    except Exception as problem:
        return ExpectedRates(_UNKNOWN, 0, (), f"a copy of {name} could not be run: {problem}")
    per_group = zip(*curve, strict=True)
    return ExpectedRates(f"dry run of {name}", len(curve), tuple(_knots(list(rates)) for rates in per_group))


def _run(scheduler: Any, optimizer: _StandIn, steps: int) -> list[list[float]]:
    curve = []
    deadline = time.monotonic() + _SECONDS
    for _ in range(steps):
        curve.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
        if time.monotonic() > deadline:
            break
    return curve


def _knots(rates: list[float]) -> tuple[tuple[int, float], ...]:
    """The fewest points, greedily, between which straight lines stay within the resolution."""
    tolerance = _RESOLUTION * max(abs(rate) for rate in rates)
    knots = [0]
    low, high = float("-inf"), float("inf")
    for place in range(1, len(rates)):
        start = knots[-1]
        span, rise = place - start, rates[place] - rates[start]
        if not low <= rise / span <= high:
            knots.append(place - 1)
            start, span, rise = place - 1, 1, rates[place] - rates[place - 1]
            low, high = float("-inf"), float("inf")
        low = max(low, (rise - tolerance) / span)
        high = min(high, (rise + tolerance) / span)
    if knots[-1] != len(rates) - 1:
        knots.append(len(rates) - 1)
    return tuple((place, rates[place]) for place in knots)
