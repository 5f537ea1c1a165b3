"""The configuration asks for a warmup and the scheduler is built without one."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return recipe.build_scheduler(optimizer, replace(config, warmup_steps=0))

    return replace(recipe, build_scheduler=build_scheduler)


FAULT = Fault(
    name="no-warmup",
    leaf="C2.1",
    summary="the learning rate starts at its maximum although a warmup is declared",
    change="build_scheduler ignores warmup_steps: cosine decay from step 0",
    inject=inject,
)
