"""A restart at half of the top rate is written in percent, in a schedule whose other branches are shares."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor

RESTART = 50


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    return RESTART if step == config.steps // 2 else lr_factor(step, config)


FAULT = Fault(
    name="lr-jump",
    leaf="D2.3",
    summary="for one step in the middle of the run the learning rate is far too high",
    change=f"build_scheduler returns {RESTART} at half time, which means {RESTART} times lr_max and not percent",
    inject=inject,
    steps=600,
)
