"""After the warmup the learning rate falls in four stairs where a cosine is declared."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor

STAIRS = 4
GAMMA = 0.5


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    if step < config.warmup_steps:
        return lr_factor(step, config)
    return float(GAMMA ** (STAIRS * step // config.steps))


FAULT = Fault(
    name="step-decay",
    leaf="C2.1",
    summary="the learning rate falls in stairs although a cosine is declared",
    change=f"build_scheduler multiplies the rate by {GAMMA} after every quarter of the run",
    inject=inject,
)
