"""The engineered faults, by name. Adding one: a file beside this one, and a line in the table."""

from dataclasses import fields, replace
from typing import Any

from steadyrun.tutor.config import TutorConfig, default_warmup
from steadyrun.tutor.faults import (
    bad_init,
    broken_mask,
    broken_normalisation,
    constant_target,
    corrupt_batch,
    dead_layer,
    dead_units,
    decay_absent,
    decay_too_high,
    degenerate_data,
    double_softmax,
    duplicate_batch,
    fp16_collapse,
    fp16_constant_scale,
    frozen_parameters,
    gradient_ascent,
    head_bias,
    healthy,
    infinite_embedding_gradient,
    inverted_cosine,
    leak,
    loaded_checkpoint,
    log_of_zero,
    long_horizon,
    loss_mask,
    lr_jump,
    lr_too_high,
    lr_too_low,
    lr_typo,
    missing_division,
    missing_normalisation,
    no_bias_correction,
    no_warmup,
    one_param_group,
    optimizer_reset,
    overfit,
    persistent_elevation,
    rare_token_spike,
    rebuilt_adam,
    rebuilt_optimizer,
    scheduler_never_stepped,
    scheduler_per_epoch,
    scheduler_twice,
    short_horizon,
    slow_warmup,
    static_training,
    step_decay,
    stuck_head,
    unclipped,
    uniform_init,
    upward_drift,
    warmup_off_by_one,
    wrong_reduction,
    zero_lr,
)
from steadyrun.tutor.recipe import Fault, Recipe

FAULTS: dict[str, Fault] = {
    "healthy": healthy.FAULT,
    "bad-init": bad_init.FAULT,
    "no-warmup": no_warmup.FAULT,
    "broken-mask": broken_mask.FAULT,
    "uniform-init": uniform_init.FAULT,
    "head-bias": head_bias.FAULT,
    "wrong-reduction": wrong_reduction.FAULT,
    "degenerate-data": degenerate_data.FAULT,
    "constant-target": constant_target.FAULT,
    "loaded-checkpoint": loaded_checkpoint.FAULT,
    "scheduler-never-stepped": scheduler_never_stepped.FAULT,
    "rebuilt-optimizer": rebuilt_optimizer.FAULT,
    "zero-lr": zero_lr.FAULT,
    "step-decay": step_decay.FAULT,
    "short-horizon": short_horizon.FAULT,
    "long-horizon": long_horizon.FAULT,
    "scheduler-twice": scheduler_twice.FAULT,
    "scheduler-per-epoch": scheduler_per_epoch.FAULT,
    "slow-warmup": slow_warmup.FAULT,
    "warmup-off-by-one": warmup_off_by_one.FAULT,
    "lr-typo": lr_typo.FAULT,
    "lr-too-high": lr_too_high.FAULT,
    "loss-mask": loss_mask.FAULT,
    "frozen-parameters": frozen_parameters.FAULT,
    "double-softmax": double_softmax.FAULT,
    "static-training": static_training.FAULT,
    "gradient-ascent": gradient_ascent.FAULT,
    "unclipped": unclipped.FAULT,
    "lr-too-low": lr_too_low.FAULT,
    "overfit": overfit.FAULT,
    "leak": leak.FAULT,
    "missing-normalisation": missing_normalisation.FAULT,
    "broken-normalisation": broken_normalisation.FAULT,
    "one-param-group": one_param_group.FAULT,
    "rebuilt-adam": rebuilt_adam.FAULT,
    "no-bias-correction": no_bias_correction.FAULT,
    "missing-division": missing_division.FAULT,
    "log-of-zero": log_of_zero.FAULT,
    "infinite-embedding-gradient": infinite_embedding_gradient.FAULT,
    "rare-token-spike": rare_token_spike.FAULT,
    "corrupt-batch": corrupt_batch.FAULT,
    "lr-jump": lr_jump.FAULT,
    "duplicate-batch": duplicate_batch.FAULT,
    "persistent-elevation": persistent_elevation.FAULT,
    "optimizer-reset": optimizer_reset.FAULT,
    "fp16-overflow-constant-scale": fp16_constant_scale.FAULT,
    "fp16-collapse": fp16_collapse.FAULT,
    "inverted-cosine": inverted_cosine.FAULT,
    "decay-too-high": decay_too_high.FAULT,
    "decay-absent": decay_absent.FAULT,
    "upward-drift": upward_drift.FAULT,
    "stuck-head": stuck_head.FAULT,
    "dead-layer": dead_layer.FAULT,
    "dead-units": dead_units.FAULT,
}


def load_recipe(fault: str = "healthy", *, remedied: bool = False, **overrides: Any) -> Recipe:
    """The training program with one fault in it, for example `load_recipe("no-warmup", steps=200, seed=1)`.

    With `remedied` it is the same program with the fault repaired, for those faults that have a remedy.
    Overrides are fields of TutorConfig. When `steps` is given and `warmup_steps` is not, the warmup is
    shortened to fit a short run.
    """
    if fault not in FAULTS:
        raise ValueError(f"unknown fault {fault!r}; known: {', '.join(FAULTS)}")
    known = [field.name for field in fields(TutorConfig)]
    if unknown := sorted(set(overrides) - set(known)):
        raise ValueError(f"unknown setting {', '.join(unknown)}; known: {', '.join(known)}")
    if "steps" in overrides and "warmup_steps" not in overrides:
        overrides["warmup_steps"] = default_warmup(overrides["steps"])
    change = FAULTS[fault].remedy if remedied else FAULTS[fault].inject
    if change is None:
        known = [name for name, each in FAULTS.items() if each.remedy is not None]
        raise ValueError(f"{fault} has no remedy; those that have one: {', '.join(known)}")
    return replace(change(Recipe(TutorConfig(**overrides))), name=fault, remedied=remedied)
