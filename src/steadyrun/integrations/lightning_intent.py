"""What a Lightning Trainer and its module declare, in the names that the questions know: only what is certain.

A wrong declaration makes a false alarm, so a default is none, and neither is a number that the program may change.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

_FORMATS = {
    "16-mixed": "fp16",
    "16-true": "fp16",
    "bf16-mixed": "bf16",
    "bf16-true": "bf16",
    "transformer-engine": "bf16",
}
_DEFAULT_EPOCHS = 1000  # what Lightning takes where neither max_epochs nor max_steps is given


def declared(trainer: Any, module: Any) -> dict[str, Any]:
    """The config of the run; names that are not certain are left out."""
    found: dict[str, Any] = {"framework": "lightning"}
    seed = os.environ.get("PL_GLOBAL_SEED", "")  # what seed_everything leaves behind
    if seed.isdecimal():
        found["seed"] = int(seed)
    if (dtype := _FORMATS.get(str(trainer.precision))) is not None:
        found["dtype"] = dtype
    if module.automatic_optimization:
        found |= _automatic(trainer, module)
    if hparams := _hparams(module):
        found["hparams"] = hparams
    return found


def _automatic(trainer: Any, module: Any) -> dict[str, Any]:
    """What Lightning does by itself: clipping, accumulation, and how long it trains."""
    found: dict[str, Any] = {}
    clip = trainer.gradient_clip_val
    algorithm = trainer.gradient_clip_algorithm
    by_norm = algorithm is None or str(getattr(algorithm, "value", algorithm)) == "norm"
    if clip and by_norm and not _overrides(module, "configure_gradient_clipping"):
        found["clip"] = float(clip)
    changes = any(type(each).__name__ == "GradientAccumulationScheduler" for each in trainer.callbacks)
    if not changes:
        found["accumulation"] = int(trainer.accumulate_grad_batches)
        if (steps := _total_steps(trainer)) is not None:
            found["total_steps"] = steps
        if trainer.accumulate_grad_batches == 1 and trainer.world_size == 1:
            size = getattr(trainer.train_dataloader, "batch_size", None)
            found |= {"batch_size": size} if isinstance(size, int) else {}
    return found


def _total_steps(trainer: Any) -> int | None:
    """How many optimizer steps are planned; None where that is not known or nobody has said it."""
    if trainer.max_steps == -1 and trainer.max_epochs in (None, -1, _DEFAULT_EPOCHS):
        return None
    steps = trainer.estimated_stepping_batches
    return int(steps) if math.isfinite(steps) and steps > 0 else None


def _overrides(module: Any, name: str) -> bool:
    home = next(kind for kind in type(module).__mro__ if name in vars(kind))
    return home.__module__.partition(".")[0] not in ("lightning", "pytorch_lightning")


def _hparams(module: Any) -> dict[str, Any]:
    """The module's hyperparameters as they are; they have names of their own, so they are kept apart."""
    held = getattr(module, "hparams", None)
    return {str(name): _plain(value) for name, value in held.items()} if isinstance(held, Mapping) else {}


def _plain(value: Any) -> Any:
    """Numbers, texts and what is made of them; of anything else (a model, a tensor) its kind alone."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else f"<{type(value).__name__}>"
