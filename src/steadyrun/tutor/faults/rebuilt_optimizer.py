"""Optimizer and scheduler are built inside the loop: the moments and the schedule begin anew in every step."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    def advance(state: TrainState) -> None:
        recipe.advance(state)
        state.optimizer = recipe.build_optimizer(state.model, state.config)
        state.scheduler = recipe.build_scheduler(state.optimizer, state.config)

    return replace(recipe, advance=advance)


FAULT = Fault(
    name="rebuilt-optimizer",
    leaf="C2.1",
    summary="every step has a new optimizer and a new scheduler",
    change="the loop calls build_optimizer and build_scheduler after each step",
    inject=inject,
)
