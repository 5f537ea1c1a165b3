"""The hunt: one step under watch, and who is guilty of what arrived where it must not."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from steadyrun.program.task import Task
from steadyrun.replay.hunt.cause_table import CAUSES
from steadyrun.replay.hunt.culprit import Culprit, Stage
from steadyrun.replay.hunt.culprit_report import culprit_of
from steadyrun.replay.hunt.dispatch_mode import Checker
from steadyrun.replay.hunt.finite_range import Bad, bad_values, dtype_name, measure, tensors_in
from steadyrun.replay.hunt.location import Locations, OperationLocation, plain_path, unwrapped
from steadyrun.replay.hunt.origins import Memory, Origin, Taint
from steadyrun.replay.hunt.sinks import Hit, Sinks

_SCALED = 16.0
_ORDER = (("root", "loss"), ("gradient",), ("update",))


def hunt(task: Task, execute: Callable[[], Any], batch: Any) -> Culprit | None:
    """Run one step and name the origin of the first non-finite number that reached loss, gradient or parameter.

    `execute` runs the whole step on the task's objects and returns its loss. Nothing is restored afterwards. Where the
    step raises and nothing was found, its exception is raised; where something was found, that is returned.
    """
    memory, locations = Memory(), Locations(task.model)
    checker = Checker(locations, memory)
    sinks = Sinks(task, locations, memory, checker)
    with suppress(Exception):
        _note_before(task, sinks, memory, batch)
    problem: Exception | None = None
    loss: Any = None
    with _watched(locations, sinks, checker):
        try:
            loss = execute()
        except Exception as raised:
            problem = raised
    with suppress(Exception):
        sinks.take_loss(loss)
        sinks.take_parameters()
    hit = _first(sinks, checker, loss, task) or (_suspect(memory) if problem is not None else None)
    if hit is None and problem is not None:
        raise problem
    return culprit_of(hit, task, locations.passes) if hit is not None else None


@contextmanager
def _watched(locations: Locations, sinks: Sinks, checker: Checker) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(_eager())
        stack.enter_context(locations.followed())
        stack.enter_context(sinks.watched())
        stack.enter_context(checker)
        yield


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled code shows no operations; where the program compiles, the step runs as it is written."""
    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
        return
    with warnings.catch_warnings(), stance("force_eager"):
        warnings.filterwarnings("ignore", message="Using `torch.compile.* global hooks")
        yield


def _first(sinks: Sinks, checker: Checker, loss: Any, task: Task) -> Hit | None:
    """The first that arrived: at the loss, else at a gradient, else at a parameter."""
    hits = sinks.hits
    size = _size(loss)
    if not any(hit.sink == "update" for hit in hits):
        if math.isfinite(size):  # the loss is finite, so it was scaled past the dtype, and the step was left out
            hits = [hit for hit in hits if hit.sink != "root" or hit.bad & Bad.NAN]
        if _scaled(sinks, checker, size, task):
            hits = [hit for hit in hits if hit.sink != "gradient" or _structural(hit)]
    return next((hit for sink in _ORDER for hit in hits if hit.sink in sink), None)


def _scaled(sinks: Sinks, checker: Checker, size: float, task: Task) -> bool:
    """Whether the loss was scaled up: then an overflow in backward is how a scale is found; the step is left out."""
    enabled = task.scaler is not None and getattr(task.scaler, "is_enabled", lambda: True)()
    return enabled or checker.unscaled or any(root > _SCALED * size > 0 for root in sinks.roots)


def _structural(hit: Hit) -> bool:
    return hit.origin is not None and not CAUSES[hit.origin.cause].overflow


def _size(loss: Any) -> float:
    try:
        return abs(float(loss.detach() if isinstance(loss, Tensor) else loss))
    except (TypeError, ValueError, RuntimeError):
        return math.nan


def _suspect(memory: Memory) -> Hit | None:
    """The step raised before anything arrived, as a check of the program's own does: what was last on the way."""
    origin = memory.suspect
    return None if origin is None else Hit("loss", "", origin.bad, torch.float32, origin)


def _note_before(task: Task, sinks: Sinks, memory: Memory, batch: Any) -> None:
    """What is not finite before the step begins: guilty only if it arrives somewhere."""
    for name, tensor in tensors_in(batch):
        _note(memory, tensor, "data", name or "batch", "", meant=not bad_values(tensor) & (Bad.UP | Bad.NAN))
    for name, tensor in unwrapped(task.model).named_buffers():
        _note(memory, tensor, "state", plain_path(name), "buffer", meant=True)
    for name, tensor in sinks.parameters.items():
        _note(memory, tensor, "state", name, "", meant=not tensor.requires_grad)
        if tensor.grad is not None:
            _note(memory, tensor.grad, "state", name, "gradient left over of")
    for name, tensor in sinks.moments():
        _note(memory, tensor, "state", name, "moment of")


def _note(memory: Memory, tensor: Tensor, stage: Stage, name: str, what: str, *, meant: bool = False) -> None:
    if not (bad := bad_values(tensor)):
        return
    cause = "non-finite-input" if stage == "data" else "non-finite-state"
    location = OperationLocation(stage, name, "", what, "", 0)
    origin = Origin(location, cause, bad, dtype_name(tensor.dtype), (measure(name, tensor),), deliberate=meant)
    infinite = origin if bad & Bad.INF else None
    memory.taint(
        tensor,
        Taint(origin if bad & Bad.NAN else None, None if meant else infinite, infinite if meant else None),
    )
