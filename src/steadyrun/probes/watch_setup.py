"""The start of `run.watch`: check the objects, read them into the manifest, build the probes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from steadyrun.errors import UsageError
from steadyrun.probes import description
from steadyrun.probes.adapters import describe_adapters
from steadyrun.probes.cadence import Cadence
from steadyrun.probes.copies import inner_copies
from steadyrun.probes.loss_scale import ScalerLike
from steadyrun.probes.optimizer_steps import OptimizerLike
from steadyrun.probes.probe_set import Watcher
from steadyrun.probes.problems import Problems
from steadyrun.probes.scheduler_dry_run import SchedulerLike, expected_rates
from steadyrun.probes.system import on_out_of_memory
from steadyrun.program.model_parts import unwrapped
from steadyrun.store.writer import RunWriter

_UNPLANNED_STEPS = 10_000


def begin_watching(
    writer: RunWriter,
    model: nn.Module,
    optimizer: Any,
    *,
    scheduler: SchedulerLike | None,
    loss_fn: object,
    scaler: ScalerLike | None,
    tokenizer: Any | None,
    blocks: Sequence[str] | None,
    collectives: bool,
    config: Mapping[str, object],
    cadence: Cadence,
    problems: Problems,
    fresh: bool,
    several: bool,
) -> Watcher | None:
    """Build the probes; a clear error for arguments that cannot be watched, None if we cannot cope with the model.

    `fresh` says that no step was recorded yet: the weights are those that the run begins with. `several` says that the
    job has several processes.
    """
    optimizers = _checked(model, optimizer, scheduler, loss_fn, scaler, blocks)
    compiled = description.is_compiled(model)
    given, model = model, unwrapped(model)

    def learned(**facts: object) -> None:
        writer.save_manifest_soon(inferred={**writer.manifest.get("inferred", {}), **facts})

    try:
        watcher = Watcher(
            model,
            optimizers,
            scheduler=scheduler,
            scaler=scaler,
            blocks=None if blocks is None else list(blocks),
            cadence=cadence,
            problems=problems,
            learned=learned,
            declared_clip=_number(config.get("clip")),
            compiled=compiled,
            collectives=collectives,
            tokens=_special_tokens(config, tokenizer),
            loss_fn=loss_fn,
        )
    except UsageError:
        raise
    except Exception as problem:
        problems.report("watch", problem)
        return None
    if several:
        with problems.contained("digests"):
            watcher.compare_ranks(given, lambda kind, facts: writer.event(kind, None, **facts))
    with problems.contained("manifest"):
        _describe(writer, watcher, model, optimizers, tokenizer, problems, fresh=fresh)
        learned(**_inferred(model, optimizers, scheduler, config))
    _tell_of_memory(writer)
    return watcher


def optimizer_step_count(optimizer: Any) -> int:
    """How many steps the optimizer's state says it has taken, 0 where it does not say."""
    steps = 0
    for single in optimizer if isinstance(optimizer, list | tuple) else [optimizer]:
        for state in getattr(single, "state", {}).values():
            if "step" in state:
                steps = max(steps, int(state["step"]))
                break
    return steps


def _checked(
    model: object, optimizer: Any, scheduler: object, loss_fn: object, scaler: object, blocks: Sequence[str] | None
) -> list[OptimizerLike]:
    if not isinstance(model, nn.Module):
        raise UsageError(f"watch: model must be a torch.nn.Module, not {type(model).__name__}")
    if any(isinstance(parameter, nn.parameter.UninitializedParameter) for parameter in model.parameters()):
        raise UsageError("watch: the model has lazy parameters without a shape yet: run one forward pass before watch")
    listed = optimizer if isinstance(optimizer, list | tuple) else [] if optimizer is None else [optimizer]
    optimizers = list(listed)
    for candidate in optimizers:
        if not hasattr(candidate, "param_groups") or not hasattr(candidate, "step"):
            raise UsageError(f"watch: optimizer must be a torch optimizer, a list of them or None, not {candidate!r}")
    if scheduler is not None and not hasattr(scheduler, "step"):
        raise UsageError(f"watch: scheduler must have a step method, {type(scheduler).__name__} has none")
    if loss_fn is not None and not callable(loss_fn):
        raise UsageError(f"watch: loss_fn must be callable, {type(loss_fn).__name__} is not")
    if scaler is not None and not hasattr(scaler, "get_scale"):
        raise UsageError(f"watch: scaler must be a torch.amp.GradScaler, not {type(scaler).__name__}")
    if isinstance(blocks, str) or (blocks is not None and not all(isinstance(name, str) for name in blocks)):
        raise UsageError(f"watch: blocks must be a list of module names or patterns, not {blocks!r}")
    return optimizers


def _describe(
    writer: RunWriter,
    watcher: Watcher,
    model: nn.Module,
    optimizers: list[OptimizerLike],
    tokenizer: Any | None,
    problems: Problems,
    *,
    fresh: bool,
) -> None:
    facts: dict[str, object] = {
        "model": description.describe_model(model) | {"compiled": watcher.compiled},
        "param_groups": description.describe_groups(optimizers, model),
        "blocks": [{"name": block.name, "role": block.role} for block in watcher.blocks],
    }
    if copied := inner_copies(model):
        names = {id(part): name for name, part in model.named_children()}
        facts["inner_copies"] = [{"name": names[id(copy)]} for copy, _ in copied]
    if adapters := describe_adapters(model):
        facts["adapters"] = adapters
    if fresh:
        facts["initial_weights"] = description.describe_weights(model)
        facts |= watcher.describe_companions()
    if tokenizer is not None:
        with problems.contained("tokenizer"):
            facts["tokenizer"] = description.describe_tokenizer(tokenizer)
    writer.save_manifest(**facts)


def _inferred(
    model: nn.Module, optimizers: list[OptimizerLike], scheduler: SchedulerLike | None, config: Mapping[str, object]
) -> dict[str, object]:
    facts: dict[str, object] = {"dtype": description.parameter_dtype(model), "seed": torch.initial_seed()}
    if scheduler is not None:
        steps = config.get("total_steps")
        horizon = steps if isinstance(steps, int) and steps > 0 else _UNPLANNED_STEPS
        stepped: Any = getattr(scheduler, "optimizer", None) or next(iter(optimizers), None)
        if hasattr(stepped, "param_groups"):
            facts["expected_lr"] = expected_rates(scheduler, stepped, model, horizon)
    return facts


def _special_tokens(config: Mapping[str, object], tokenizer: object) -> dict[str, int]:
    """The ids of padding and of the end of a text: declared, or the tokenizer's own."""
    tokens = {}
    for name in ("pad_id", "eos_id"):
        token_id = config.get(name, getattr(tokenizer, f"{name.removesuffix('_id')}_token_id", None))
        if isinstance(token_id, int) and not isinstance(token_id, bool):
            tokens[name] = token_id
    return tokens


def _tell_of_memory(writer: RunWriter) -> None:
    """Record out-of-memory errors that the training loop catches itself; the writer may be gone by then."""
    alive = weakref.ref(writer)

    def tell(facts: dict[str, float]) -> None:
        if (target := alive()) is not None:
            target.event("out-of-memory", None, why="the CUDA allocator could not serve a request", **facts)

    on_out_of_memory(tell)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float | Tensor) and not isinstance(value, bool) else None
