"""The cosine has the wrong sign: after the warmup the rate falls to its minimum at once and climbs to the end."""

import math
from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor

# At the rate of the healthy program the loss falls all the same. At this one the second half goes uphill.
LR = 0.04


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    config = replace(recipe.config, lr_max=LR, lr_min=LR / 10)
    return replace(recipe, config=config, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    if step < config.warmup_steps:
        return lr_factor(step, config)
    progress = min(1.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    floor = config.lr_min / config.lr_max
    return floor + (1 - floor) * 0.5 * (1 - math.cos(math.pi * progress))


FAULT = Fault(
    name="inverted-cosine",
    leaf="C2.1",
    summary="the learning rate climbs over the run, and in the end the loss with it",
    change=f"build_scheduler has 1 - cos where 1 + cos was meant; lr_max is {LR}",
    inject=inject,
    steps=600,
)
