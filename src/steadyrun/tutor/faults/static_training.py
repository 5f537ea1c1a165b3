"""The gradients are cleared between backward and the optimizer's step, which then has nothing to apply."""

import math
from dataclasses import replace

from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    return replace(recipe, update=_update)


def _update(state: TrainState) -> Tensor:
    state.scaler.unscale_(state.optimizer)
    norm = clip_grad_norm_(state.model.parameters(), state.config.clip or math.inf)
    state.optimizer.zero_grad()
    state.optimizer.step()
    state.scaler.update()
    return norm


FAULT = Fault(
    name="static-training",
    leaf="C4.1",
    summary="gradients are computed and no parameter ever moves",
    change="update calls zero_grad before the optimizer's step",
    inject=inject,
)
