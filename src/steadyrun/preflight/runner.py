"""Run all probes on one bench; the effects of each are undone before the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.errors import SteadyrunError, UsageError
from steadyrun.preflight.batch_draw import first_of
from steadyrun.preflight.bench import Bench
from steadyrun.probes.description import is_compiled
from steadyrun.program.program_state import ProgramState
from steadyrun.program.task import Task
from steadyrun.program.torch_compat import something_was_compiled
from steadyrun.questions.form import Finding, Limits, Question
from steadyrun.trees.walker import Changes, Walk, walk


def tried(
    task: Task,
    probes: Mapping[str, Question],
    changes: Changes,
    *,
    batches: Any,
    deep: bool,
    resumed: Any,
    progress: Callable[[int, int, str], None],
) -> Walk:
    """Run every probe, and restore the task bit for bit."""
    _check(task)
    state = ProgramState(task)
    indices = {code: index for index, code in enumerate(probes)}
    try:
        drawn, val_batches = _read(batches, "batches"), _read(_validation(task), "val_batches")
        state.put_back()  # a shuffling loader has drawn random numbers
        bench = Bench(task, drawn, val_batches=val_batches, config=task.config, deep=deep, resumed=resumed)
        undone = {code: dataclasses.replace(probe, find=_undone(probe)) for code, probe in probes.items()}
        tell = lambda probe: progress(indices[probe.code], len(probes), probe.name)  # noqa: E731
        with eager(task):
            walked = walk(undone, bench, changes, go_on=True, asking=tell)
        progress(len(probes), len(probes), "")
    finally:
        state.put_back()
    if differences := state.differences():
        found = "; ".join(differences[:3])
        raise SteadyrunError(f"preflight could not restore the program: {found}; build the task again before you train")
    return walked


def eager(task: Task) -> AbstractContextManager[Any]:
    """Run a compiled model eagerly, so that its graph can be read and no probe compiles."""
    stance = getattr(torch.compiler, "set_stance", None)
    compiled = is_compiled(task.model) or something_was_compiled()
    return stance("force_eager") if compiled and stance is not None else nullcontext()


def _read(loader: Any, name: str) -> list[Any]:
    """The first batches; raises `UsageError` for a loader that fails or is empty."""
    try:
        batches = first_of(loader)
    except Exception as problem:
        raise UsageError(
            f"preflight: reading {name} raised {type(problem).__name__}: {problem}; make the loader readable first"
        ) from problem
    if loader is not None and not batches:
        raise UsageError(f"preflight: the loader of {name} is empty; give it at least one batch")
    return batches


def _validation(task: Task) -> Any:
    """The validation loader; None for an empty list."""
    return None if isinstance(task.val_loader, list | tuple) and not task.val_loader else task.val_loader


def _undone(probe: Question) -> Callable[[Bench, Limits], Finding]:
    """A probe whose effects are undone however it ends."""

    def find(bench: Bench, limit: Limits) -> Finding:
        with bench.pristine(), torch.enable_grad():
            return probe.find(bench, limit)

    return find


def _check(task: Task) -> None:
    if not isinstance(task.model, nn.Module):
        raise UsageError(f"preflight: model must be a torch.nn.Module, not {type(task.model).__name__}")
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in task.model.parameters()):
        raise UsageError("preflight: the model has lazy parameters without a shape; run one forward pass first")
    for optimizer in task.optimizers:
        if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "step"):
            raise UsageError(f"preflight: optimizer must be a torch optimizer or a list of them, not {optimizer!r}")
    if not callable(task.loss_fn):
        raise UsageError(f"preflight: loss_fn must be callable, not {type(task.loss_fn).__name__}")
    with suppress(TypeError):
        if isinstance(task.loader, Tensor) or len(task.loader) == 0:  # type: ignore[arg-type]
            raise UsageError("preflight: batches must be a loader or a list of batches, and not empty")
