"""Changes of learning rates and settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from steadyrun.probes.batch_hashes import is_list_of_batches
from steadyrun.probes.loss_graph import read
from steadyrun.program.program_state import untouched
from steadyrun.program.torch_compat import CLIP_WITH_NORM
from steadyrun.program.training_changes import (
    clipped,
    defaults_of,
    drops,
    groups_of,
    no_dropout,
    no_smoothing,
    not_clipped,
    with_settings,
)
from steadyrun.replay.hunt import fp32
from steadyrun.trial.batches import halved, joined, rows_of
from steadyrun.trial.factor import (
    BATCH,
    CLIP,
    DECAY,
    DROPOUT,
    OPTIMIZER,
    PRECISION,
    RATE,
    SMOOTHING,
    START,
    WARMUP,
    Factor,
    NotVaried,
    rate_factor,
)
from steadyrun.trial.twin import Twin

RATES = (0.1, 1 / 3, 3.0, 10.0)
WARM = 0.3  # fraction of a trial's steps: a longer warmup
_UNUSUAL = 0.5  # fraction of the best gain: a much higher rate compensates a large epsilon but is not the cause
# The optimizers that replace the program's, by the name of the change, each at its standard rate.
STANDARD: dict[str, tuple[Any, float]] = {"adamw": (torch.optim.AdamW, 1e-3), "sgd": (torch.optim.SGD, 0.1)}
COMMON = {"momentum": 0.9}  # the common value if the optimizer's default is none


def rates(twin: Twin) -> Iterator[Factor | NotVaried]:
    if not all("lr" in group for group in groups_of(twin.task)):
        yield NotVaried("rate", RATE, "learning rate", "the param groups have no learning rate")
        return
    yield from (rate_factor(times) for times in RATES)
    yield Factor(
        "warmup", WARMUP, "a longer warmup", rate=lambda step, steps: min(1.0, (step + 1) / max(1.0, WARM * steps))
    )


def settings(twin: Twin) -> Iterator[Factor | NotVaried]:
    task, groups = twin.task, groups_of(twin.task)
    if any(group.get("weight_decay") for group in groups):
        yield Factor("no-decay", DECAY, "no weight decay", lambda t: _set(t, weight_decay=0.0), removes=True)
    else:
        yield NotVaried("no-decay", DECAY, "weight decay", "no param group has a weight decay")
    if any(drops(module) for module in twin.model.modules()):
        yield Factor("no-dropout", DROPOUT, "no dropout", lambda t: no_dropout(t.task), removes=True)
    else:
        yield NotVaried("no-dropout", DROPOUT, "dropout", "the model has no active dropout")
    yield _smoothing(twin)
    yield from _clipping(twin)
    differing = _not_default(twin, "betas", "eps", "momentum", "alpha", "nesterov", "amsgrad")
    if differing:
        words = "the usual " + " and ".join(sorted(differing))
        yield Factor(
            "default-settings", OPTIMIZER, words, lambda t: _defaults(t, *differing), removes=True, near_best=_UNUSUAL
        )
    else:
        yield NotVaried(
            "default-settings",
            OPTIMIZER,
            "betas, epsilon and momentum",
            "they have their usual values",
        )
    if any(hasattr(module, "reset_parameters") for module in twin.model.modules()):
        yield Factor("default-start", START, "torch's default initial weights", _started_anew, removes=True)
    else:
        yield NotVaried("default-start", START, "initial weights", "no module can reset its parameters")
    if _is_narrow(twin):
        yield Factor("float32", PRECISION, "float32 instead of fp16 or bf16", _in_float32, removes=True)
    else:
        yield NotVaried("float32", PRECISION, "precision", "neither the parameters nor the config use fp16 or bf16")
    yield from _batch_sizes(twin)
    if len(task.optimizers) == 1:
        for name, (made, rate) in STANDARD.items():
            if type(task.optimizers[0]) is not made:
                words = f"plain {made.__name__} instead of the optimizer"
                yield Factor(name, OPTIMIZER, words, lambda t, made=made, rate=rate: _replaced(t, made, rate))  # type: ignore[misc]
    else:
        yield NotVaried("adamw", OPTIMIZER, "another optimizer", "the task has several optimizers")


def _set(twin: Twin, **settings: Any) -> AbstractContextManager[None]:
    return with_settings(twin.task, lambda _optimizer, group: {k: v for k, v in settings.items() if k in group})


def _defaults(twin: Twin, *names: str) -> AbstractContextManager[None]:
    return with_settings(
        twin.task,
        lambda optimizer, group: {k: v for k, v in usual_settings(optimizer, *names).items() if k in group},
    )


def usual_settings(optimizer: Any, *names: str) -> dict[str, Any]:
    """The usual values of these settings."""
    return {name: COMMON.get(name, default) for name, default in defaults_of(optimizer, *names).items()}


def _not_default(twin: Twin, *names: str) -> tuple[str, ...]:
    """The settings with an unusual value; a momentum of 0 is also usual."""
    found = set()
    for optimizer in twin.task.optimizers:
        plain = defaults_of(optimizer, *names)
        for group in optimizer.param_groups:
            for name, common in usual_settings(optimizer, *names).items():
                value = group.get(name, common)
                value = tuple(value) if isinstance(value, list) else value
                if value not in (common, plain[name]):
                    found.add(name)
    return tuple(sorted(found))


def _smoothing(twin: Twin) -> Factor | NotVaried:
    """The change that turns off label smoothing, if the graph of the loss has it."""
    with untouched(twin.task), torch.enable_grad():
        twin.model.train()
        graph = read(twin.loss(twin._single(twin.data.training[0])))
    if any(labels.smoothing > 0 for labels in graph.labels):
        return Factor("no-smoothing", SMOOTHING, "no label smoothing", lambda _: no_smoothing(), removes=True)
    return NotVaried("no-smoothing", SMOOTHING, "label smoothing", "the loss uses no label smoothing")


def _clipping(twin: Twin) -> Iterator[Factor | NotVaried]:
    if _clips(twin):
        yield Factor("no-clip", CLIP, "no clipping", lambda _: not_clipped(), removes=True)
    else:
        yield NotVaried("no-clip", CLIP, "the program's own clipping", "the step does not call clip_grad_norm_")
    yield Factor("clip-1", CLIP, "gradients clipped to a norm of 1", lambda t: clipped(t.task, 1.0))


def _clips(twin: Twin) -> bool:
    """Whether a step of the program clips gradients; undoes the step."""
    seen: list[bool] = []

    def noted(call: Any, *args: Any, **options: Any) -> Any:
        seen.append(True)
        return call(*args, **options)

    with untouched(twin.task), torch.enable_grad(), CLIP_WITH_NORM.wrapped(noted):
        twin.model.train()
        twin.step(twin.data.training[0])
    return bool(seen)


@contextmanager
def _started_anew(twin: Twin) -> Iterator[None]:
    """Reset every module to its default initial weights; training restores the state afterwards."""
    torch.manual_seed(sum(map(ord, "start")))
    for module in twin.model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            with torch.no_grad():
                reset()
    yield


def _is_narrow(twin: Twin) -> bool:
    narrow = (torch.float16, torch.bfloat16)
    declared = str(twin.config.get("dtype", "")).lower()
    return any(each.dtype in narrow for each in twin.model.parameters()) or declared in {
        *("bf16", "fp16", "bfloat16", "float16", "half", "bf16-mixed", "16-mixed"),
    }


def _in_float32(twin: Twin) -> AbstractContextManager[Any]:
    return fp32(twin.task)


def _batch_sizes(twin: Twin) -> Iterator[Factor | NotVaried]:
    batch = twin.data.training[0]
    if rows_of(twin._single(batch)) is None or is_list_of_batches(batch):
        yield NotVaried("batch*2", BATCH, "batch size", "the tensors of a batch do not share their first dimension")
        return
    if joined(batch, batch) is not None:
        yield Factor("batch*2", BATCH, "twice the batch size", batches=_doubled)
    if halved(batch) is not None:
        yield Factor("batch/2", BATCH, "half the batch size", batches=_halved)


def _doubled(twin: Twin) -> list[Any]:
    drawn = twin.data.training
    pairs = zip(drawn, [*drawn[1:], drawn[0]], strict=True)
    return [both if (both := joined(one, other)) is not None else one for one, other in pairs]


def _halved(twin: Twin) -> list[Any]:
    return [pair[0] if (pair := halved(batch)) is not None else batch for batch in twin.data.training]


@contextmanager
def _replaced(twin: Twin, kind: Any, rate: float) -> Iterator[None]:
    """Step another optimizer instead of the program's, at its standard rate, scaled by the schedule."""
    own = twin.task.optimizers[0]
    peak = max((float(group["lr"]) for group in own.param_groups), default=0.0) or 1.0
    other: Any = kind([{"params": list(group["params"])} for group in own.param_groups], lr=rate)

    def step(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        for group, mine in zip(own.param_groups, other.param_groups, strict=True):
            mine["lr"] = rate * float(group["lr"]) / peak
        other.step()
        for group in own.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    handle = own.register_step_pre_hook(step)
    try:
        yield
    finally:
        handle.remove()
