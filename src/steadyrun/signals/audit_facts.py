"""What several audits need to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Points, Signals

HOW = "call run.watch(model, optimizer) before the first forward pass of an eager model"


def objective(run: Signals) -> Mapping[str, Any]:
    """What the graph of the loss showed; an error where none was read."""
    facts = run.inferred.get("objective")
    if not isinstance(facts, dict):
        raise MissingSignal("objective", "the graph of the loss was not read", HOW)
    return facts


def reach(run: Signals) -> Mapping[str, Any]:
    """Whom the gradient reached; an error where a part of the graph is compiled."""
    facts = objective(run)
    if "trained" not in facts:
        raise MissingSignal("objective", "a part of the graph is compiled: whom the gradient reaches is not known", HOW)
    return facts


def names(facts: Mapping[str, Any], key: str) -> list[str]:
    listed = facts.get(key)
    return [str(name) for name in listed] if isinstance(listed, list) else []


def count(facts: Mapping[str, Any], key: str) -> int:
    return int(number(facts.get(key)) or 0)


def sampled(run: Signals, name: str, why: str = "") -> Points:
    """A series of the sampled steps; an error with how to record it."""
    points = run.maybe(name)
    if points is None:
        raise MissingSignal(name, why or f"{name} was not recorded", HOW)
    return points


def of_targets(run: Signals, name: str, why: str) -> Points:
    """A series about the targets; the question does not arise where the loss was read and has none such."""
    if run.maybe(name) is None and isinstance(run.inferred.get("objective"), dict):
        raise NotApplicable(why)
    return sampled(run, name, "the graph of the loss was not read")


def in_a_row(bad: Any, wanted: float) -> int | None:
    """Where the first stretch of this many begins; None where there is none. What was once so stays found."""
    length = 0
    for index, wrong in enumerate(np.asarray(bad, dtype=bool).tolist()):
        length = length + 1 if wrong else 0
        if length >= wanted:
            return index - length + 1
    return None


def shuffles(run: Signals, batches: int) -> str:
    """Who says that the data is shuffled; "" where nobody does."""
    if run.config.get("shuffle") is True:
        return "the run declares shuffle"
    for loader in run.listed("loaders"):
        if loader.get("shuffles") is True and number(loader.get("batches")) == batches:
            return f"the loader's {loader.get('sampler')} shuffles"
    return ""
