"""Faults between backward and the step: gradients with the wrong sign or size, or without effect."""

import math
from dataclasses import replace

from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def _inject_gradient_ascent(recipe: Recipe) -> Recipe:
    """Maximise the loss through a sign error."""

    def backward(state: TrainState, loss: Tensor) -> None:
        recipe.backward(state, -loss)

    return replace(recipe, backward=backward)


GRADIENT_ASCENT = Fault(
    name="gradient-ascent",
    leaf="C1.2",
    summary="a sign error makes the optimizer maximise the loss",
    change="backward runs on the negative loss",
    inject=_inject_gradient_ascent,
)


MICRO_BATCHES = 4


def _inject_missing_division(recipe: Recipe) -> Recipe:
    """Sum the gradients of four micro-batches without dividing by four."""

    def backward(state: TrainState, loss: Tensor) -> None:
        state.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    return replace(recipe, config=replace(recipe.config, accumulation=MICRO_BATCHES), backward=backward)


MISSING_DIVISION = Fault(
    name="missing-division",
    leaf="C6.3",
    summary="the gradient is the sum over the micro-batches, not their mean",
    change="backward does not divide by accumulation",
    inject=_inject_missing_division,
)


def _inject_static_training(recipe: Recipe) -> Recipe:
    """Clear the gradients between backward and the optimizer's step."""
    return replace(recipe, update=_update)


def _update(state: TrainState) -> Tensor:
    state.scaler.unscale_(state.optimizer)
    norm = clip_grad_norm_(state.model.parameters(), state.config.clip or math.inf)
    state.optimizer.zero_grad()
    state.optimizer.step()
    state.scaler.update()
    return norm


STATIC_TRAINING = Fault(
    name="static-training",
    leaf="C4.1",
    summary="gradients are computed, but no parameter ever changes",
    change="update calls zero_grad before the optimizer's step",
    inject=_inject_static_training,
)
