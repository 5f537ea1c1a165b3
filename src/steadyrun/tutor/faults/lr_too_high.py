"""A learning rate of 3 where 3e-4 was meant: in the configuration, so the program does as it is told."""

from dataclasses import replace

from steadyrun.tutor.recipe import Fault, Recipe

# AdamW with layer norms and clipping forgives much: at 30 times the rate this model still learns, at 1000 times it
# stalls with small gradients. Only where the exponent is lost altogether do the gradients stay large.
TIMES = 10_000


def inject(recipe: Recipe) -> Recipe:
    return replace(recipe, config=replace(recipe.config, lr_max=TIMES * recipe.config.lr_max))


FAULT = Fault(
    name="lr-too-high",
    leaf="C3.1",
    summary="the declared learning rate lost its exponent: 3 for 3e-4",
    change=f"lr_max is {TIMES:,} times what it should be",
    inject=inject,
)
