"""A few of the program's own steps, run once for all probes of the step.

The first step; a repeat of it; the second step; the second step with leftover gradients of the first set to NaN; the
second step after the state went through its state_dicts into overwritten objects.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from steadyrun.preflight.bench import Bench
from steadyrun.preflight.step_difference import first_difference
from steadyrun.preflight.step_trace import StepTrace, any_number, dense, traced_step
from steadyrun.program.model_parts import clean
from steadyrun.program.program_state import ProgramState
from steadyrun.signals.missing import MissingSignal


@dataclass
class Rehearsal:
    """The traces of the steps."""

    first: StepTrace
    again: StepTrace  # from the same state, on the same batch
    second: StepTrace
    left: set[int] = field(default_factory=set)  # gradients that the first step leaves behind, by id of the parameter
    carried: set[int] = field(default_factory=set)  # of those, the ones that the second step's gradient contains
    accumulates: bool = False  # no optimizer steps, and the second call adds to the gradients of the first
    loaded: StepTrace | None = None  # the second step after save and load
    control: StepTrace | None = None  # the second step repeated without loading, if `loaded` differs
    why_not_loaded: str = ""
    unsaved: list[str] = field(default_factory=list)  # state that the first step changes and no state_dict has


def rehearsal(bench: Bench) -> Rehearsal:
    """The rehearsed steps, computed once; raises `MissingSignal` without an optimizer."""
    if not bench.optimized:
        raise MissingSignal("optimizer", "preflight has no optimizer", "give preflight the optimizer")
    if "rehearsal" not in bench.memo:
        try:
            with bench.pristine(), torch.enable_grad():
                bench.memo["rehearsal"] = _rehearse(bench)
        except MissingSignal as missing:
            bench.memo["rehearsal"] = missing
    made = bench.memo["rehearsal"]
    if isinstance(made, MissingSignal):
        raise made
    rehearsed: Rehearsal = made
    return rehearsed


def names_of(bench: Bench, keys: Collection[int]) -> list[str]:
    """Names of parameters by their ids, in the order of the model, then tensors outside it."""
    names = {id(parameter): name for name, parameter in bench.parameters.items()}
    return [name for key, name in names.items() if key in keys] + ["another tensor" for key in keys if key not in names]


def step_input(bench: Bench, index: int) -> Any:
    """The input of the program's step: a batch, or the list of micro-batches of an accumulated step.

    A program that declares accumulation may split a batch itself: its step fails on a list.
    """
    if bench.accumulation == 1 or bench.task.train_step is None:
        return bench.batches[index % len(bench.batches)] if bench.batches else bench.batch()
    takes = bench.memo.setdefault("takes a list", True)
    return bench.micro_batches(index) if takes else bench.batch(index % len(bench.batches))


def _first(bench: Bench, ready: ProgramState) -> StepTrace:
    """The first step; on one batch if it fails on a list of micro-batches."""
    try:
        return traced_step(bench, step_input(bench, 0))
    except MissingSignal:
        if not bench.memo.get("takes a list"):
            raise
    bench.memo["takes a list"] = False
    ready.put_back()
    return traced_step(bench, step_input(bench, 0))


def _rehearse(bench: Bench) -> Rehearsal:
    start = ProgramState(bench.task)
    bench.reseed()
    bench.modes(True)
    ready = ProgramState(bench.task)
    bench.task.step = 0
    first = _first(bench, ready)
    first_input, second_input = step_input(bench, 0), step_input(bench, 1)
    later = ProgramState(bench.task)
    saved, why = _saved(bench)
    bench.task.step = 1
    second = traced_step(bench, second_input)
    rehearsed = Rehearsal(first, first, second, why_not_loaded=why)
    _look_for_leftovers(bench, later, rehearsed, second_input)
    if saved is not None:
        _load_and_step(bench, rehearsed, saved, start, later, second_input)
    ready.put_back()
    bench.task.step = 0
    rehearsed.again = traced_step(bench, first_input)
    return rehearsed


def _look_for_leftovers(bench: Bench, later: ProgramState, rehearsed: Rehearsal, batch: Any) -> None:
    """Set the gradients left by the first step to NaN, and find out whether the second step's contain them."""
    later.put_back()
    optimized = {id(parameter): parameter for parameter in bench.optimized}
    left = {
        key: parameter
        for key, parameter in optimized.items()
        if parameter.grad is not None and any_number(parameter.grad)
    }
    if not left or bench.task.train_step is None:
        return
    for parameter in left.values():
        dense(parameter.grad).fill_(float("nan"))  # type: ignore[arg-type]
    bench.task.step = 1
    marked = traced_step(bench, batch)
    still_marked = {key for key, parameter in left.items() if _is_marked(parameter.grad)}
    stepped = rehearsed.second.stepped
    rehearsed.left = set(left) & stepped
    rehearsed.carried = {key for key in left if key in stepped and _is_marked(marked.gradients.get(key))}
    if not marked.stepped and bench.task.scaler is not None:  # the scaler skipped the step because of NaN
        rehearsed.carried = still_marked & stepped
    rehearsed.accumulates = not stepped and bool(still_marked)
    later.put_back()


def _is_marked(gradient: Tensor | None) -> bool:
    return gradient is not None and bool(dense(gradient).isnan().any())


def _saved(bench: Bench) -> tuple[bytes | None, str]:
    """The state_dicts of the task's objects, saved by torch.save, or why that failed."""
    buffer = io.BytesIO()
    try:
        torch.save({name: part.state_dict() for name, part in _parts(bench).items()}, buffer)
    except Exception as problem:
        return None, f"torch.save of the state_dicts raised {type(problem).__name__}: {problem}"
    return buffer.getvalue(), ""


def _parts(bench: Bench) -> dict[str, Any]:
    task = bench.task
    parts: dict[str, Any] = {"model": bench.model}
    parts |= {f"optimizer {index}": optimizer for index, optimizer in enumerate(task.optimizers)}
    parts |= {"scheduler": task.scheduler, "scaler": task.scaler}
    return {name: part for name, part in parts.items() if hasattr(part, "load_state_dict")}


def _load_and_step(
    bench: Bench, rehearsed: Rehearsal, saved: bytes, start: ProgramState, later: ProgramState, batch: Any
) -> None:
    """Overwrite what a new process would build afresh, load, and repeat the second step."""
    saved_names = set(bench.model.state_dict())
    names = {id(module): clean(path) for path, module in bench.model.named_modules()}
    later.put_back()
    changed = start.own.attributes.changed()
    rehearsed.unsaved = [_named(names, owner, name) for owner, name in changed if _counts(owner, name, bench)]
    rehearsed.unsaved += [
        name
        for name, saved_tensor in start.tensors.items()
        if name not in saved_names and not torch.equal(saved_tensor.tensor, saved_tensor.copy)
    ]
    start.put_back_own()
    with torch.no_grad():
        for tensor in bench.model.state_dict().values():
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                tensor.mul_(0.5).add_(0.01)
    state = torch.load(io.BytesIO(saved), weights_only=False)
    try:
        for name, part in _parts(bench).items():
            part.load_state_dict(state[name])
    except Exception as problem:
        rehearsed.why_not_loaded = f"load_state_dict raised {type(problem).__name__}: {problem}"
        later.put_back()
        return
    later.put_back_surroundings()
    bench.task.step = 1
    rehearsed.loaded = traced_step(bench, batch)
    if first_difference(bench, rehearsed.second, rehearsed.loaded) is not None:
        later.put_back()
        bench.task.step = 1
        rehearsed.control = traced_step(bench, batch)


def _counts(owner: Any, name: str, bench: Bench) -> bool:
    """Whether a state_dict could have the attribute: it belongs to a module or optimizer and is not torch's own."""
    ours = any(owner is known for known in [*bench.model.modules(), *bench.task.optimizers])
    return ours and not name.startswith("_") and name != "training"


def _named(names: dict[int, str], owner: Any, name: str) -> str:
    path = names.get(id(owner))
    if path is None:
        return f"{type(owner).__name__}.{name}"
    return f"{path}.{name}" if path else name
