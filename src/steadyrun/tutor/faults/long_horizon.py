"""The cosine is built for ten times the steps, as when the run was cut short and nobody told the scheduler."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return recipe.build_scheduler(optimizer, replace(config, steps=10 * config.steps))

    return replace(recipe, build_scheduler=build_scheduler)


FAULT = Fault(
    name="long-horizon",
    leaf="C2.1",
    summary="the run ends before the learning rate has come down",
    change="build_scheduler plans for ten times the steps",
    inject=inject,
)
