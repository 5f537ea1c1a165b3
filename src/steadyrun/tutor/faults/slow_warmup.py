"""The warmup is stretched for four workers that each step the scheduler, and there is only one."""

from dataclasses import replace

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe, lr_factor

WORKERS = 4


def inject(recipe: Recipe) -> Recipe:
    def build_scheduler(optimizer: Optimizer, config: TutorConfig) -> LRScheduler:
        return LambdaLR(optimizer, lambda step: _factor(step, config))

    return replace(recipe, build_scheduler=build_scheduler)


def _factor(step: int, config: TutorConfig) -> float:
    warmup = min(1.0, step / max(1, WORKERS * config.warmup_steps))
    return warmup * lr_factor(max(step, config.warmup_steps), config)


FAULT = Fault(
    name="slow-warmup",
    leaf="C2.2",
    summary="at the end of the declared warmup the learning rate has come a quarter of the way",
    change=f"build_scheduler warms up by t / ({WORKERS} * warmup_steps); the cosine has the right length",
    inject=inject,
)
