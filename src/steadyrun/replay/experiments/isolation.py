"""Isolate the failure: the same data with a smaller model, the same model on synthetic data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrun.errors import UsageError
from steadyrun.program.random_state import put
from steadyrun.program.task import Task, build_task
from steadyrun.questions.dynamics.run_spikes import SIGMAS
from steadyrun.replay.experiments.verdict import DATA, MODEL, OPTIMIZER, RATE, UNDECIDED, FactorRow, FailureAxes
from steadyrun.replay.result import Replay
from steadyrun.replay.session import Session

_SIZES = re.compile(
    r"(n_?)?(width|hidden|hidden_size|hidden_dim|dim|d_?model|n_?embd|embed_dim|channels|layers|n_?layers?|num_layers|depth)"
)
_LEAST = 20  # steps before the incident that a comparison needs
_LEARNT = 1.3  # factor on the run's own loss
_MOST = 800  # steps for a smaller model to reach it


def isolate(result: Replay, moment: int, verdict: str) -> FailureAxes:
    """Train a smaller model on the window's own batches, and this model on synthetic batches.

    `verdict` is the result of the experiments so far.
    """
    small, made_up = _smaller(result, moment), _synthetic(result, moment)
    rows = [row for row in (small, made_up) if row is not None]
    with_small, with_made_up = (None if row is None else row.gone for row in (small, made_up))
    if verdict in {RATE, OPTIMIZER}:
        return FailureAxes(rows, "optimizer", "changing only the optimizer removes the incident")
    if with_small is False and with_made_up is True:
        return FailureAxes(
            rows, DATA, "a smaller model also fails on the same batches, and synthetic batches are harmless"
        )
    if with_made_up is False and with_small is True:
        return FailureAxes(rows, MODEL, "synthetic batches also fail, and a smaller model does not")
    if with_small is False and with_made_up is False:
        return FailureAxes(
            rows,
            MODEL,
            "it fails with a smaller model and with synthetic batches: the cause is in code that both share",
        )
    return FailureAxes(rows, UNDECIDED, "a smaller model and synthetic batches do not separate data and model")


def smaller(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with every value that looks like a model size halved; 1 stays."""
    return {
        name: value // 2
        if type(value) is int and value >= 2 and value % 2 == 0 and _SIZES.fullmatch(name.lower())
        else value
        for name, value in config.items()
    }


def _smaller(result: Replay, moment: int) -> FactorRow | None:
    """The same batches in the same order, with new weights and half the size."""
    config = result.incident.view.manifest.get("config") or {}
    changed = smaller(config)
    if result.factory is None or changed == config:
        return None
    words = "the same batches with a smaller model"
    try:
        losses = _train(result, build_task(result.factory, changed), moment)
    except Exception as problem:
        return FactorRow(
            "smaller-model", MODEL, words, math.nan, math.nan, None, f"{type(problem).__name__}: {problem}"
        )
    return FactorRow(
        "smaller-model", MODEL, words, _last(losses), math.nan, _calm(losses), ", ".join(_changes(config, changed))
    )


def _synthetic(result: Replay, moment: int) -> FactorRow | None:
    """The same state on batches of random numbers, which contain nothing of the incident's batch."""
    session, words = result.session, "synthetic batches with the same model"
    first = max(result.incident.first_step, moment - 2 * _LEAST)
    try:
        session.rewind()
        for step in range(result.incident.first_step, first):
            session.execute(step)
        losses = [
            float(session.execute(step, synthetic(result.incident.batch(min(step, moment - 1), session.device), step)))
            for step in range(first, moment + 1)
        ]
    except Exception as problem:
        return FactorRow(
            "made-up-batches", DATA, words, math.nan, math.nan, None, f"{type(problem).__name__}: {problem}"
        )
    return FactorRow("made-up-batches", DATA, words, _last(losses), math.nan, _calm(losses))


def _train(result: Replay, task: Task, moment: int) -> list[float]:
    """Train a new program on the batches before the incident until it fits them like the run; then run the bad batch.

    If the loss became non-finite, one pass is enough.
    """
    incident, session = result.incident, _like(result.session, task)
    before = range(incident.first_step, moment)
    recorded = [incident.recorded("loss").get(step, math.nan) for step in before][-_LEAST:]
    level = math.inf if result.first_bad is not None else _LEARNT * float(np.nanmean(recorded))
    losses: list[float] = []
    for count in range(max(len(before), _MOST)):
        losses.append(_one(session, before[count % len(before)]))
        if count >= len(before) - 1 and float(np.mean(losses[-_LEAST:])) <= level:
            return [*losses, _one(session, moment)]
    raise UsageError(f"it did not fit the window's batches within {_MOST} steps")


def _one(session: Session, step: int) -> float:
    put(session.incident.random(step)[0])
    return float(session.stepper.run(step, session.incident.batch(step, session.device)))


def _like(session: Session, task: Task) -> Session:
    other = object.__new__(Session)
    other.incident, other.task, other.device = session.incident, task, session.device
    other.stepper = type(session.stepper)(task, session.incident)
    return other


def synthetic(batch: Any, seed: int) -> Any:
    """Random numbers with the range (integers) or the standard deviation (floats) of each tensor."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(batch, Tensor):
        return _noise(batch, generator)
    if isinstance(batch, dict):
        return type(batch)({key: synthetic(item, seed + index) for index, (key, item) in enumerate(batch.items())})
    if isinstance(batch, list | tuple):
        items = [synthetic(item, seed + index) for index, item in enumerate(batch)]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch


def _noise(tensor: Tensor, generator: torch.Generator) -> Tensor:
    if not tensor.numel() or tensor.dtype == torch.bool or tensor.is_complex():
        return tensor
    if tensor.is_floating_point():
        finite = tensor[torch.isfinite(tensor)].float()
        mean, spread = (float(finite.mean()), float(finite.std(correction=0))) if finite.numel() else (0.0, 1.0)
        made = torch.randn(tensor.shape, generator=generator) * spread + mean
    else:
        low, high = int(tensor.min()), int(tensor.max())
        made = torch.randint(low, high + 1, tensor.shape, generator=generator)
    return made.to(tensor.device, tensor.dtype)


def _calm(losses: list[float]) -> bool | None:
    """Whether the last loss is finite and not a jump; None if there are too few losses before it."""
    if not all(map(math.isfinite, losses)):
        return False
    before = np.array(losses[:-1][-_LEAST:])
    if len(before) < _LEAST:
        return None
    return bool(losses[-1] <= max(before.mean() + SIGMAS * before.std(), before.max()))


def _last(losses: list[float]) -> float:
    return losses[-1] if losses else math.nan


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [f"{name} {before[name]} to {after[name]}" for name in before if before[name] != after[name]]
