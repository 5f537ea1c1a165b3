"""A warmup of one step that is counted from 1 although the first step is 0."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, config=replace(recipe.config, warmup_steps=1), build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    if step <= config.warmup_steps:
        return max(0, step - 1) / config.warmup_steps
    return lr_factor(step, config)


FAULT = Fault(
    name="warmup-off-by-one",
    leaf="C2.2",
    summary="the warmup of one step is still at zero when it should be over",
    change="build_scheduler warms up by (t - 1) / warmup_steps with t from 0; warmup_steps is 1",
    inject=inject,
)
