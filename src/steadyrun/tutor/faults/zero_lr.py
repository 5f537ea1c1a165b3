"""The optimizer is built with rate 0, to begin the warmup there; the scheduler can only multiply it."""

from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, lr_max=0.0))

    return replace(recipe, build_optimizer=build_optimizer)


FAULT = Fault(
    name="zero-lr",
    leaf="C2.1",
    summary="the learning rate is 0 in every step",
    change="build_optimizer gives the param groups lr=0, which the schedule multiplies",
    inject=inject,
)
