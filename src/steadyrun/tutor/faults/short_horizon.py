"""The cosine ends in the middle of the run, as when the length of the run was doubled in one of two places."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        half = max(1, config.steps // 2)
        return recipe.build_scheduler(
            optimizer, replace(config, steps=half, warmup_steps=min(half, config.warmup_steps))
        )

    return replace(recipe, build_scheduler=build_scheduler)


FAULT = Fault(
    name="short-horizon",
    leaf="C2.1",
    summary="the learning rate reaches its minimum in the middle of the run",
    change="build_scheduler plans for half of the steps",
    inject=inject,
)
