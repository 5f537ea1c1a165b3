"""Half precision with a loss scale that is set anew after every step and is too high to be left alone."""

import math
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, TrainState

SCALE = 2.0**18


def inject(recipe: Recipe) -> Recipe:
    config = replace(recipe.config, dtype="fp16")
    return replace(recipe, config=config, build_scaler=_build_scaler, update=_update)


def _build_scaler(config: TutorConfig) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(torch.device(config.device).type, init_scale=SCALE)


def _update(state: TrainState) -> Tensor:
    state.scaler.unscale_(state.optimizer)
    norm = clip_grad_norm_(state.model.parameters(), state.config.clip or math.inf)
    state.scaler.step(state.optimizer)
    state.scaler.update(SCALE)
    state.optimizer.zero_grad()
    return norm


FAULT = Fault(
    name="fp16-overflow-constant-scale",
    leaf="D3.2",
    summary="gradients overflow in half precision and the loss scale stays where it is",
    change="update calls scaler.update(2**18), which sets the scale, where scaler.update() would have lowered it",
    inject=inject,
    steps=120,
)
