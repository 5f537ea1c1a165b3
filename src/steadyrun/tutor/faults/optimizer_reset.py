"""A resume from a checkpoint whose weights and schedule are loaded, and not the optimizer."""

from dataclasses import replace

from steadyrun.tutor.recipe import Checkpoint, Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    return replace(recipe, load_checkpoint=_load_checkpoint, resume_at=recipe.config.steps // 2)


def _load_checkpoint(state: TrainState, saved: Checkpoint) -> None:
    state.model.load_state_dict(saved["model"])
    state.scheduler.load_state_dict(saved["scheduler"])
    for group, rate in zip(state.optimizer.param_groups, state.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate


FAULT = Fault(
    name="optimizer-reset",
    leaf="D2.3",
    summary="half way the run is resumed with a new optimizer: no moments, step count 0",
    change="load_checkpoint, called at half time, forgets the optimizer",
    inject=inject,
    steps=600,
)
