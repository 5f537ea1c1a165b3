"""The scheduler is stepped twice per optimizer step: once by the loop, once by a helper that it calls."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    def advance(state: TrainState) -> None:
        recipe.advance(state)
        recipe.advance(state)

    return replace(recipe, advance=advance)


FAULT = Fault(
    name="scheduler-twice",
    leaf="C2.1",
    summary="the schedule runs at double speed",
    change="the loop calls scheduler.step() twice in every step",
    inject=inject,
)
