"""The engineered faults by name. To add a fault, write it in the file of its topic and list it here."""

from dataclasses import fields, replace
from typing import Any

from steadyrun.tutor.config import TutorConfig, default_warmup
from steadyrun.tutor.faults import (
    architectures,
    corpora,
    gradient_faults,
    initial_weights,
    learning_rates,
    number_formats,
    objectives,
    optimizers,
    schedules,
    tuning,
)
from steadyrun.tutor.recipe import Fault, Recipe

_HEALTHY = Fault(
    name="healthy",
    leaf="",
    summary="the healthy reference run",
    change="none",
    inject=lambda recipe: recipe,
)
_IN_ORDER = (
    _HEALTHY,
    initial_weights.BAD_INIT,
    schedules.NO_WARMUP,
    architectures.BROKEN_MASK,
    initial_weights.UNIFORM_INIT,
    initial_weights.HEAD_BIAS,
    objectives.WRONG_REDUCTION,
    objectives.DEGENERATE_DATA,
    objectives.CONSTANT_TARGET,
    initial_weights.LOADED_CHECKPOINT,
    schedules.SCHEDULER_NEVER_STEPPED,
    optimizers.REBUILT_OPTIMIZER,
    learning_rates.ZERO_LR,
    schedules.STEP_DECAY,
    schedules.SHORT_HORIZON,
    schedules.LONG_HORIZON,
    schedules.SCHEDULER_TWICE,
    schedules.SCHEDULER_PER_EPOCH,
    schedules.SLOW_WARMUP,
    schedules.WARMUP_OFF_BY_ONE,
    learning_rates.LR_TYPO,
    learning_rates.LR_TOO_HIGH,
    objectives.LOSS_MASK,
    optimizers.FROZEN_PARAMETERS,
    objectives.DOUBLE_SOFTMAX,
    gradient_faults.STATIC_TRAINING,
    gradient_faults.GRADIENT_ASCENT,
    learning_rates.UNCLIPPED,
    learning_rates.LR_TOO_LOW,
    corpora.OVERFIT,
    corpora.LEAK,
    architectures.MISSING_NORMALISATION,
    architectures.BROKEN_NORMALISATION,
    optimizers.ONE_PARAM_GROUP,
    optimizers.REBUILT_ADAM,
    optimizers.NO_BIAS_CORRECTION,
    gradient_faults.MISSING_DIVISION,
    objectives.LOG_OF_ZERO,
    architectures.INFINITE_EMBEDDING_GRADIENT,
    corpora.RARE_TOKEN_SPIKE,
    corpora.CORRUPT_BATCH,
    learning_rates.LR_JUMP,
    corpora.DUPLICATE_BATCH,
    optimizers.PERSISTENT_ELEVATION,
    optimizers.OPTIMIZER_RESET,
    number_formats.FP16_CONSTANT_SCALE,
    number_formats.FP16_COLLAPSE,
    schedules.INVERTED_COSINE,
    optimizers.DECAY_TOO_HIGH,
    optimizers.DECAY_ABSENT,
    corpora.UPWARD_DRIFT,
    architectures.STUCK_HEAD,
    architectures.DEAD_LAYER,
    architectures.DEAD_UNITS,
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in _IN_ORDER}
"""Of pretraining; those of fine-tuning and policies are in `tuning.TUNING_FAULTS`."""
OF_ONE_PROCESS = FAULTS | tuning.TUNING_FAULTS


def load_recipe(fault: str = "healthy", *, remedied: bool = False, **overrides: Any) -> Recipe:
    """The training program with one fault, for example `load_recipe("no-warmup", steps=200, seed=1)`.

    With `remedied` the fault is repaired, if it has a remedy. Overrides are fields of TutorConfig. With `steps` and
    without `warmup_steps`, the warmup is shortened to fit a short run.
    """
    if fault not in OF_ONE_PROCESS:
        raise ValueError(f"unknown fault {fault!r}; choose one of: {', '.join(OF_ONE_PROCESS)}")
    known = [field.name for field in fields(TutorConfig)]
    if unknown := sorted(set(overrides) - set(known)):
        raise ValueError(f"unknown setting {', '.join(unknown)}; choose from: {', '.join(known)}")
    if "steps" in overrides and "warmup_steps" not in overrides:
        overrides["warmup_steps"] = default_warmup(overrides["steps"])
    change = OF_ONE_PROCESS[fault].remedy if remedied else OF_ONE_PROCESS[fault].inject
    if change is None:
        known = [name for name, each in OF_ONE_PROCESS.items() if each.remedy is not None]
        raise ValueError(f"{fault} has no remedy; faults with a remedy: {', '.join(known)}")
    return replace(change(Recipe(TutorConfig(**overrides))), name=fault, remedied=remedied)
