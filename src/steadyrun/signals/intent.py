"""Declared and inferred facts that several questions need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steadyrun.signals.declared_schedule import number
from steadyrun.signals.missing import MissingSignal, NotApplicable
from steadyrun.signals.run_signals import Points, Signals

# Facts for several audits.


HOW = "call run.watch(model, optimizer) before the first forward pass of an eager model"


def objective(run: Signals) -> Mapping[str, Any]:
    """Facts from the graph of the loss; `MissingSignal` if it was not recorded."""
    facts = run.inferred.get("objective")
    if not isinstance(facts, dict):
        raise MissingSignal("objective", "the graph of the loss was not recorded", HOW)
    return facts


def reach(run: Signals) -> Mapping[str, Any]:
    """Which parameters the gradient reached; `MissingSignal` if a part of the graph is compiled."""
    facts = objective(run)
    if "trained" not in facts:
        why = "parts of the graph are compiled or sharded, so the parameters that the gradient reaches are not known"
        raise MissingSignal("objective", why, HOW)
    return facts


def names(facts: Mapping[str, Any], key: str) -> list[str]:
    listed = facts.get(key)
    return [str(name) for name in listed] if isinstance(listed, list) else []


def count(facts: Mapping[str, Any], key: str) -> int:
    return int(number(facts.get(key)) or 0)


def sampled(run: Signals, name: str, why: str = "") -> Points:
    """A series of the sampled steps; `MissingSignal` with the way to record it."""
    points = run.maybe(name)
    if points is None:
        raise MissingSignal(name, why or f"{name} was not recorded", HOW)
    return points


def of_targets(run: Signals, name: str, why: str) -> Points:
    """A series about the targets; `NotApplicable` if the graph of the loss has no such targets."""
    if run.maybe(name) is None and isinstance(run.inferred.get("objective"), dict):
        raise NotApplicable(why)
    return sampled(run, name, "the graph of the loss was not recorded")


def in_a_row(bad: Any, wanted: float) -> int | None:
    """The index at which the first series of this many true values begins; None if there is none."""
    length = 0
    for index, wrong in enumerate(np.asarray(bad, dtype=bool).tolist()):
        length = length + 1 if wrong else 0
        if length >= wanted:
            return index - length + 1
    return None


def shuffles(run: Signals, batches: int) -> str:
    """In words: what shows that the data is shuffled; "" if nothing does."""
    if run.config.get("shuffle") is True:
        return "the config declares shuffle=True"
    for loader in run.listed("loaders"):
        if loader.get("shuffles") is True and number(loader.get("batches")) == batches:
            return f"the loader's {loader.get('sampler')} shuffles"
    return ""


# Classes, start and reduction.


def unknown_classes(run: Signals) -> tuple[str, str, str]:
    """Why the number of classes is not known: the name of what is missing, the reason, and what to do."""
    name = next((name for name in ("vocab_size", "num_classes") if name in run.config), None)
    declared, width = run.declared(name) if name else None, number(run.inferred.get("output_width"))
    if name and declared is not None and width is not None:
        why = f"{name} {declared:g} is declared, but the model's output has {width:g} values"
        return name, why, f"declare {name} as in the loss"
    if name:
        return name, f"the declared {name} is not a number of at least 2", f"declare {name} as a number"
    why = "neither vocab_size nor num_classes is declared"
    if width is None:
        return "vocab_size", f"{why} or could be inferred", ""
    return "vocab_size", f"{why}, and the first loss does not show whether the {width:g} outputs are classes", ""


def untrained_start(run: Signals) -> None:
    """Raise `NotApplicable` if the run does not start from random weights."""
    init = run.config.get("init")
    if isinstance(init, str) and init.lower() != "random":
        raise NotApplicable(f"the config declares init={init!r}, so the run does not start from random weights")
    if run.events("resume") and (loss := run.maybe("loss")) is not None and loss.steps[0] > 0:
        raise NotApplicable(f"the record begins with a resume at step {loss.step_at(0)}")


def summed_loss(run: Signals) -> None:
    """Raise `NotApplicable` if the declared loss is a sum: its size depends on the batch."""
    if run.config.get("reduction") == "sum":
        raise NotApplicable("the config declares reduction='sum', so the size of the loss depends on the batch")


def seen_sum(run: Signals) -> int | None:
    """The number of classes of a cross-entropy that is seen to be a sum over items; None if it is not one."""
    objective = run.inferred.get("objective")
    if not isinstance(objective, dict) or objective.get("reduction") != "sum":
        return None
    classes = objective.get("classes")
    return int(classes) if isinstance(classes, int | float) and classes >= 2 else None


# Number formats and the loss scaler.


_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}


def regime(run: Signals) -> str:
    """The declared dtype, or that of the parameters; fp16 if only a loss scale is recorded."""
    declared = run.config.get("dtype")
    if isinstance(declared, str) and declared:
        return _NAMES.get(declared.lower().removeprefix("torch."), declared.lower())
    if run.has("loss_scale") and np.any(run.raw("loss_scale").values != 1):  # bf16 programs print a scale of 1
        return "fp16"
    dtype = run.inferred.get("dtype")
    return str(dtype) if isinstance(dtype, str) else ""


def longest_run(flags: np.ndarray) -> tuple[int, int]:
    """The longest series of true values: its length and its first index."""
    if not np.any(flags):
        return 0, 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    lengths = edges[1::2] - edges[::2]
    index = int(np.argmax(lengths))
    return int(lengths[index]), int(edges[::2][index])
