"""A learning rate that only clipping could tame, without clipping and without decay."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe

LR = 1.0


def inject(recipe: Recipe) -> Recipe:
    config = replace(recipe.config, lr_max=LR, lr_min=LR / 10, clip=None, schedule="constant")
    return replace(recipe, config=config)


FAULT = Fault(
    name="unclipped",
    leaf="C4.1",
    summary="a far too high learning rate without clipping or decay: the loss climbs away",
    change="the configuration says lr_max 1, clip none, schedule constant",
    inject=inject,
)
