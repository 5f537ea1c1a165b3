"""From an origin and the place it reached to a culprit in words."""

from __future__ import annotations

from typing import Any

from steadyrun.program.task import Task
from steadyrun.replay.hunt.cause_rules import vanishes
from steadyrun.replay.hunt.cause_table import CAUSES
from steadyrun.replay.hunt.culprit import Culprit, Range, Stage
from steadyrun.replay.hunt.finite_range import dtype_name, worst
from steadyrun.replay.hunt.location import OperationLocation
from steadyrun.replay.hunt.origins import Origin
from steadyrun.replay.hunt.sinks import Hit


def culprit_of(hit: Hit, task: Task, passes: int) -> Culprit:
    """The culprit of what arrived at a sink in a step of so many backward passes."""
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
    """The forward operation behind a gradient, where its result was not finite and the loss did not show it."""
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
    reached = {"gradient": f"the gradient of {hit.name}", "update": f"what the optimizer left of {hit.name}"}
    subject = _subject(origin.location, "forward" if cause == "hidden-branch" else stage, module)
    inputs = "; ".join(describe(operand) for operand in origin.inputs[:3])
    first = f"{subject} {CAUSES[cause].meaning}" + (f" ({inputs})." if inputs else ".")
    also = f" There {origin.location.operation} {CAUSES[origin.cause].meaning}." if _tells_more(origin, cause) else ""
    eps = _epsilon(task, origin.dtype) if cause == "optimizer-epsilon" else ""
    return f"{first}{also}{eps} The {worst(origin.bad)} reached {reached.get(hit.sink, 'the loss')}."


def _tells_more(origin: Origin, cause: str) -> bool:
    return cause == "hidden-branch" and origin.cause not in ("hidden-branch", "unknown")


def _subject(location: OperationLocation, stage: str, module: str) -> str:
    """What the meaning of a cause is said of."""
    operation = location.operation or "something"
    if stage == "data":
        return f"The batch's {module!r}" if module else f"A tensor from outside of the step, read by {operation},"
    if stage == "state":
        return f"The {location.operation or 'parameter'} {module}"
    if stage == "update":
        return f"In the update of {module}, {operation}"
    kind = f" ({location.module_type})" if location.module_type and module else ""
    inside = f"{module or location.module_type or 'the loss function'}{kind}"
    return f"In {inside}, {'the gradient of ' if stage == 'backward' else ''}{operation}"


def describe(operand: Range) -> str:
    """One input in words: `self from 0 to 3.2, 12.5% zeros`."""
    if operand.empty:
        return f"{operand.name} has no elements"
    span = "without a finite value" if operand.low is None else f"from {operand.low + 0.0:.4g} to {operand.high:.4g}"
    if operand.low is not None and operand.low == operand.high:
        span = f"= {operand.low + 0.0:.4g}"
    shares = [(operand.zeros, "zeros"), (operand.nonfinite, "not finite")]
    notes = "".join(f", {100 * share:.3g}% {word}" for share, word in shares if share and operand.shape)
    return f"{operand.name} {span}{notes}"


def _epsilon(task: Task, dtype: str) -> str:
    groups: list[Any] = [group for optimizer in task.optimizers for group in getattr(optimizer, "param_groups", [])]
    epsilons = {group["eps"] for group in groups if isinstance(group.get("eps"), float | int)}
    gone = [eps for eps in epsilons if vanishes(eps, dtype)]
    if not gone:
        return ""
    return f" eps is {gone[0]:g}, which is zero in {dtype}." if gone[0] else " eps is 0."
