"""A new optimizer in every step, with the right learning rate: only its memory is lost."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe, TrainState


def inject(recipe: Recipe) -> Recipe:
    def advance(state: TrainState) -> None:
        recipe.advance(state)
        rates = state.scheduler.get_last_lr()
        optimizer = recipe.build_optimizer(state.model, state.config)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        state.scheduler.optimizer = state.optimizer = optimizer

    return replace(recipe, advance=advance)


FAULT = Fault(
    name="rebuilt-adam",
    leaf="C6.2",
    summary="every step has a new optimizer that gets the right learning rate and has no moments",
    change="the loop calls build_optimizer after each step and hands it to the scheduler",
    inject=inject,
)
