"""The learning-rate curve the scheduler would give, found by running a copy of it on a stand-in optimizer."""

from __future__ import annotations

import copy
import inspect
import time
import warnings
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from steadyrun.probes.optimizer_steps import OptimizerLike, ParamGroup
from steadyrun.probes.scalars import untouched_random_states
from steadyrun.signals.curves import knots

_UNKNOWN = "unknown"
_SECONDS = 1.0


class SchedulerLike(Protocol):
    """What is called on a scheduler; the rest is read where it is there."""

    def step(self) -> object: ...


@dataclass(frozen=True)
class ExpectedRates:
    """Learning rate per *scheduler* step and param group, as knots of a piecewise-linear curve."""

    source: str
    steps: int
    groups: tuple[tuple[tuple[int, float], ...], ...]
    why: str = ""
    begun: float | None = None  # how often the scheduler had been stepped where the curve begins, if it says


class _StandIn:
    """What a scheduler sees of an optimizer: param groups with all their numbers, and one scalar each.

    No `torch.optim.Optimizer`: its steps would call everybody's optimizer hooks.
    """

    def __init__(self, optimizer: object, groups: list[ParamGroup]) -> None:
        self.param_groups = [{**group, "params": [torch.zeros(())]} for group in groups]
        self.defaults = dict(getattr(optimizer, "defaults", {}))
        self.state: dict[object, object] = {}

    def step(self) -> None:
        return None


def steps_taken(scheduler: object) -> float | None:
    """How often the scheduler was stepped, None if it does not count."""
    counted = getattr(scheduler, "last_epoch", None)
    parts = getattr(scheduler, "_schedulers", None)  # ChainedScheduler has no count of its own
    if counted is None and parts:
        return steps_taken(parts[0])
    return float(counted) if isinstance(counted, int) else None


def expected_rates(scheduler: Any, optimizer: OptimizerLike, model: object, steps: int) -> ExpectedRates:
    """Dry-run `scheduler` for `steps` steps from its present state."""
    name = type(scheduler).__name__
    if hasattr(scheduler, "num_bad_epochs"):
        return ExpectedRates(_UNKNOWN, 0, (), f"{name} follows a metric, so its curve cannot be known ahead")
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    if any(inspect.ismethod(function) for function in getattr(scheduler, "lr_lambdas", [])):
        return ExpectedRates(_UNKNOWN, 0, (), f"{name} calls a method of an object of yours, which is left alone")
    stand_in = _StandIn(optimizer, copy.deepcopy(groups))
    try:
        with warnings.catch_warnings(), untouched_random_states():
            warnings.simplefilter("ignore")
            double = copy.deepcopy(scheduler, {id(optimizer): stand_in, id(model): model})
            curve = _run(double, stand_in, steps)
    except Exception as problem:
        return ExpectedRates(_UNKNOWN, 0, (), f"a copy of {name} could not be run: {problem}")
    per_group = tuple(knots(list(rates)) for rates in zip(*curve, strict=True))
    return ExpectedRates(f"dry run of {name}", len(curve), per_group, begun=steps_taken(scheduler))


def _run(scheduler: SchedulerLike, optimizer: _StandIn, steps: int) -> list[list[float]]:
    curve = []
    deadline = time.monotonic() + _SECONDS
    for _ in range(steps):
        curve.append([float(group["lr"]) for group in optimizer.param_groups])
        optimizer.step()
        try:
            scheduler.step()
        except Exception:  # a scheduler that refuses to go beyond its own end (OneCycleLR) has shown all its rates
            if len(curve) == 1:
                raise
            break
        if time.monotonic() > deadline:
            break
    return curve
