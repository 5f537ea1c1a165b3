"""The weights of an earlier training are loaded where a fresh start is declared."""

from dataclasses import replace

from torch import nn

from steadyrun.tutor.config import default_warmup
from steadyrun.tutor.recipe import Fault, Recipe
from steadyrun.tutor.train import train

EARLIER_STEPS = 300


def inject(recipe: Recipe) -> Recipe:
    def init_weights(model: nn.Module) -> None:
        warmup = default_warmup(EARLIER_STEPS)
        config = replace(recipe.config, steps=EARLIER_STEPS, warmup_steps=warmup, accumulation=1)
        model.load_state_dict(train(replace(recipe, config=config)).model.state_dict())

    return replace(recipe, init_weights=init_weights)


FAULT = Fault(
    name="loaded-checkpoint",
    leaf="C1.1",
    summary="the run begins with trained weights although a random start is declared",
    change=f"init_weights loads the weights that {EARLIER_STEPS} healthy steps left behind",
    inject=inject,
)
