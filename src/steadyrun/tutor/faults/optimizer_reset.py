"""A resume from a checkpoint that holds the weights and the schedule, and not the optimizer."""

import io
from dataclasses import replace

import torch

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    def advance(state: TrainState) -> None:
        recipe.advance(state)
        if state.step + 1 == state.config.steps // 2:
            _resume(recipe, state, _checkpoint(state))

    return replace(recipe, advance=advance)


def _checkpoint(state: TrainState) -> io.BytesIO:
    file = io.BytesIO()
    torch.save({"model": state.model.state_dict(), "scheduler": state.scheduler.state_dict()}, file)
    file.seek(0)
    return file


def _resume(recipe: Recipe, state: TrainState, file: io.BytesIO) -> None:
    saved = torch.load(file)
    state.model.load_state_dict(saved["model"])
    state.optimizer = recipe.build_optimizer(state.model, state.config)
    state.scheduler = recipe.build_scheduler(state.optimizer, state.config)
    state.scheduler.load_state_dict(saved["scheduler"])
    for group, rate in zip(state.optimizer.param_groups, state.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate


FAULT = Fault(
    name="optimizer-reset",
    leaf="D2.3",
    summary="half way the run is resumed with a new optimizer: no moments, step count 0",
    change="the checkpoint that is loaded at half time has no optimizer state",
    inject=inject,
    steps=600,
)
