"""What a compiled Keras model declares, in the names that the questions know: only what is certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from steadyrun.probes.knots import knots

_CROSS_ENTROPIES = {"categoricalcrossentropy", "sparsecategoricalcrossentropy"}
_UNPLANNED_STEPS = 10_000


def declared(model: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the run; names that are not certain are left out."""
    optimizer = model.optimizer.get_config()
    found: dict[str, Any] = {"framework": f"keras ({keras.backend.backend()})", "compile": _compiled(model, optimizer)}
    if clip := optimizer.get("global_clipnorm"):
        found["clip"] = float(clip)
    accumulated = int(optimizer.get("gradient_accumulation_steps") or 1)
    found["accumulation"] = accumulated
    epochs, steps = params.get("epochs"), params.get("steps")
    if isinstance(epochs, int) and isinstance(steps, int):
        found["total_steps"] = epochs * steps // accumulated
    if (classes := _classes(model)) is not None:
        found["num_classes"] = classes
    return found


def expected_rates(model: Any, planned: Any, taken: int) -> dict[str, Any] | None:
    """The learning rates that a schedule will give, as knots; None where the rate is a number."""
    schedule = getattr(getattr(model.optimizer, "inner_optimizer", model.optimizer), "_learning_rate", None)
    if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return None
    last = max(taken + 2, planned if isinstance(planned, int) else _UNPLANNED_STEPS)
    at = np.unique(np.linspace(taken, last - 1, min(last - taken, 1000)).astype(int))
    rates = [float(keras.ops.convert_to_numpy(schedule(int(step)))) for step in at]
    curve = [(int(at[place] - taken), rate) for place, rate in knots(rates)]
    return {"source": f"dry run of {type(schedule).__name__}", "steps": last - taken, "groups": [curve], "why": ""}


def _compiled(model: Any, optimizer: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {
        name: value for name, value in optimizer.items() if value is None or isinstance(value, int | float | str)
    }
    rate = optimizer.get("learning_rate")
    if isinstance(rate, Mapping):
        plain["learning_rate"] = {"schedule": rate.get("class_name"), **dict(rate.get("config") or {})}
    return {"optimizer": plain, "loss": _loss_name(model), "dtype_policy": model.dtype_policy.name}


def _loss_name(model: Any) -> str:
    """The name of the loss, however it was given to `compile`."""
    loss = getattr(model, "loss", None)
    return loss if isinstance(loss, str) else str(getattr(loss, "__name__", type(loss).__name__))


def _classes(model: Any) -> int | None:
    """The width of the one output, where the loss chooses among classes."""
    shape = getattr(model, "output_shape", None)
    if _loss_name(model).replace("_", "").lower() not in _CROSS_ENTROPIES or not isinstance(shape, tuple) or not shape:
        return None
    return shape[-1] if isinstance(shape[-1], int) and shape[-1] >= 2 else None
