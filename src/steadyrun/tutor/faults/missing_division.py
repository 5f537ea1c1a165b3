"""Gradients of four micro-batches are added up and not divided by four."""

from dataclasses import replace

from torch import Tensor

from steadyrun.tutor.recipe import Fault, Recipe, TrainState

MICRO_BATCHES = 4


def inject(recipe: Recipe) -> Recipe:
    def backward(state: TrainState, loss: Tensor) -> None:
        state.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    return replace(recipe, config=replace(recipe.config, accumulation=MICRO_BATCHES), backward=backward)


FAULT = Fault(
    name="missing-division",
    leaf="C6.3",
    summary="the gradient is the sum over the micro-batches, not their mean",
    change="backward leaves out the division by accumulation",
    inject=inject,
)
