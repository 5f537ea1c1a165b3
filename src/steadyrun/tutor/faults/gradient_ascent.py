"""A sign error: the loss is maximised."""

from dataclasses import replace

from torch import Tensor

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    def backward(state: TrainState, loss: Tensor) -> None:
        recipe.backward(state, -loss)

    return replace(recipe, backward=backward)


FAULT = Fault(
    name="gradient-ascent",
    leaf="C1.2",
    summary="a sign error makes the optimizer climb",
    change="backward is called on the negative loss",
    inject=inject,
)
