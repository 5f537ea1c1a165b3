"""A learning rate a thousand times too low: in the configuration, so the program does as it is told."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe

TIMES = 1000


def inject(recipe: Recipe) -> Recipe:
    config = recipe.config
    return replace(recipe, config=replace(config, lr_max=config.lr_max / TIMES, lr_min=config.lr_min / TIMES))


FAULT = Fault(
    name="lr-too-low",
    leaf="C4.1",
    summary=f"the declared learning rate is {TIMES} times too low",
    change=f"lr_max and lr_min are {TIMES} times smaller than they should be",
    inject=inject,
)
