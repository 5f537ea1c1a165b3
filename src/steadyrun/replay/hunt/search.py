"""The hunt: observe one step, and find the origin of the first non-finite value that reached a sink."""

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
from steadyrun.replay.hunt.cause_rules import vanishes
from steadyrun.replay.hunt.culprit import CAUSES, Culprit, Range, Stage
from steadyrun.replay.hunt.dispatch_mode import Checker
from steadyrun.replay.hunt.finite_range import Bad, bad_values, dtype_name, measure, tensors_in, worst
from steadyrun.replay.hunt.location import Locations, OperationLocation, plain_path, unwrapped
from steadyrun.replay.hunt.origins import Memory, Origin, Taint
from steadyrun.replay.hunt.sinks import Hit, Sinks
from steadyrun.text import percent, shown

# From an origin and the sink it reached to a culprit in words.


def culprit_of(hit: Hit, task: Task, passes: int) -> Culprit:
    """The culprit of a non-finite value at a sink, in a step with this number of backward passes."""
    origin = hit.origin or Origin(_unseen(hit), "unknown", hit.bad, dtype_name(hit.dtype))
    origin, cause = _behind(origin, hit)
    location = origin.location
    stage = _stage(location, hit, cause, passes)
    module = hit.name if stage == "update" else location.module
    return Culprit(
        stage=stage,
        module=module,
        module_type=location.module_type,
        parameter=hit.name or (location.module if stage == "state" else ""),
        operation=location.operation if stage not in ("data", "state") else "",
        value=worst(origin.bad),
        dtype=origin.dtype,
        inputs=origin.inputs,
        where=location.where,
        cause=cause,
        message=_message(origin, cause, stage, module, hit, task),
        fix=CAUSES[cause].fix,
    )


def _behind(origin: Origin, hit: Hit) -> tuple[Origin, str]:
    """The forward operation of a gradient, if its result was not finite and the loss did not show it."""
    source = origin.location.source
    if origin.cause == "hidden-branch" and source is not None and source.spoiled is not None:
        return source.spoiled, "hidden-branch"
    if hit.sink == "gradient" and origin.location.stage in ("forward", "loss") and origin.location.passes == 0:
        return origin, "hidden-branch"
    if origin.deliberate and origin.location.stage in ("forward", "loss"):
        return origin, "escaped-infinity"
    return origin, origin.cause


def _stage(location: OperationLocation, hit: Hit, cause: str, passes: int) -> Stage:
    if location.stage in ("forward", "loss") and cause == "hidden-branch":
        return "backward"
    if location.stage == "update" and hit.sink in ("root", "loss"):  # the loss function in an optimizer's closure
        return "loss"
    if location.stage == "loss" and hit.sink in ("gradient", "update") and location.passes == passes > 0:
        return "update"
    return location.stage


def _unseen(hit: Hit) -> OperationLocation:
    stage: dict[str, Stage] = {"root": "loss", "loss": "loss", "gradient": "backward", "update": "update"}
    owner = hit.name.rpartition(".")[0] if hit.sink == "gradient" else ""
    return OperationLocation(stage[hit.sink], owner, "", "", "", 0)


def _message(origin: Origin, cause: str, stage: str, module: str, hit: Hit, task: Task) -> str:
    reached = {"gradient": f"the gradient of {hit.name}", "update": f"the updated {hit.name}"}
    subject = _subject(origin.location, "forward" if cause == "hidden-branch" else stage, module)
    inputs = "; ".join(describe(operand) for operand in origin.inputs[:3])
    first = f"{subject} {CAUSES[cause].meaning}" + (f" ({inputs})." if inputs else ".")
    also = f" There {origin.location.operation} {CAUSES[origin.cause].meaning}." if _tells_more(origin, cause) else ""
    eps = _epsilon(task, origin.dtype) if cause == "optimizer-epsilon" else ""
    return f"{first}{also}{eps} The {_VALUES[worst(origin.bad)]} reached {reached.get(hit.sink, 'the loss')}."


def _tells_more(origin: Origin, cause: str) -> bool:
    return cause == "hidden-branch" and origin.cause not in ("hidden-branch", "unknown")


def _subject(location: OperationLocation, stage: str, module: str) -> str:
    """The subject of the sentence that a cause's meaning completes."""
    operation = location.operation or "an operation"
    if stage == "data":
        return f"The batch's {module!r}" if module else f"A tensor from outside the step, read by {operation},"
    if stage == "state":
        return f"The {location.operation or 'parameter'} {module}"
    if stage == "update":
        return f"In the update of {module}, {operation}"
    kind = f" ({location.module_type})" if location.module_type and module else ""
    inside = f"{module or location.module_type or 'the loss function'}{kind}"
    return f"In {inside}, {'the gradient of ' if stage == 'backward' else ''}{operation}"


def describe(operand: Range) -> str:
    """One input in words: `self from 0 to 3.2, 12.5% zeros`, with three significant digits."""
    if operand.empty:
        return f"{operand.name} is empty"
    span = (
        "without a finite value"
        if operand.low is None
        else f"from {shown(operand.low + 0.0)} to {shown(operand.high or 0.0)}"
    )
    if operand.low is not None and operand.low == operand.high:
        span = f"= {shown(operand.low + 0.0)}"
    fractions = [(operand.zeros, "zeros"), (operand.nonfinite, "not finite")]
    notes = "".join(f", {percent(fraction)} {word}" for fraction, word in fractions if fraction and operand.shape)
    return f"{operand.name} {span}{notes}"


def _epsilon(task: Task, dtype: str) -> str:
    groups: list[Any] = [group for optimizer in task.optimizers for group in getattr(optimizer, "param_groups", [])]
    epsilons = {group["eps"] for group in groups if isinstance(group.get("eps"), float | int)}
    gone = [eps for eps in epsilons if vanishes(eps, dtype)]
    if not gone:
        return ""
    return f" eps is {gone[0]:g}, which is zero in {dtype}." if gone[0] else " eps is 0."


_VALUES = {"nan": "NaN", "inf": "infinity", "-inf": "minus infinity"}
_SCALED = 16.0
_ORDER = (("root", "loss"), ("gradient",), ("update",))


def hunt(task: Task, execute: Callable[[], Any], batch: Any) -> Culprit | None:
    """Run one step and find the origin of the first non-finite value that reached loss, gradient or parameter.

    `execute` runs the whole step on the task's objects and returns its loss. Nothing is restored afterwards. If the
    step raises, return what was found; if nothing was found, raise its exception.
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
    """Turn torch.compile off within this context: compiled code hides its operations."""
    stance = getattr(torch.compiler, "set_stance", None)
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
        return
    with warnings.catch_warnings(), stance("force_eager"):
        warnings.filterwarnings("ignore", message="Using `torch.compile.* global hooks")
        yield


def _first(sinks: Sinks, checker: Checker, loss: Any, task: Task) -> Hit | None:
    """The first value that arrived: at the loss, else at a gradient, else at a parameter."""
    hits = sinks.hits
    size = _size(loss)
    if not any(hit.sink == "update" for hit in hits):
        if math.isfinite(size):  # the loss is finite, so the scaled loss overflowed, and the scaler skipped the step
            hits = [hit for hit in hits if hit.sink != "root" or hit.bad & Bad.NAN]
        if _scaled(sinks, checker, size, task):
            hits = [hit for hit in hits if hit.sink != "gradient" or _structural(hit)]
    return next((hit for sink in _ORDER for hit in hits if hit.sink in sink), None)


def _scaled(sinks: Sinks, checker: Checker, size: float, task: Task) -> bool:
    """Whether the loss was scaled up: then the scaler skips a step whose backward overflows."""
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
    """The last suspect value, if the step raised before any value arrived, as the program's own check does."""
    origin = memory.suspect
    return None if origin is None else Hit("loss", "", origin.bad, torch.float32, origin)


def _note_before(task: Task, sinks: Sinks, memory: Memory, batch: Any) -> None:
    """Mark the non-finite values that exist before the step; they count only if they arrive somewhere."""
    for name, tensor in tensors_in(batch):
        _note(memory, tensor, "data", name or "batch", "", meant=not bad_values(tensor) & (Bad.UP | Bad.NAN))
    for name, tensor in unwrapped(task.model).named_buffers():
        _note(memory, tensor, "state", plain_path(name), "buffer", meant=True)
    for name, tensor in sinks.parameters.items():
        _note(memory, tensor, "state", name, "", meant=not tensor.requires_grad)
        if tensor.grad is not None:
            _note(memory, tensor.grad, "state", name, "leftover gradient of")
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
