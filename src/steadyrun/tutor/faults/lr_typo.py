"""The optimizer is built with another learning rate than the configuration says."""

from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, lr_max=10 * config.lr_max))

    return replace(recipe, build_optimizer=build_optimizer)


FAULT = Fault(
    name="lr-typo",
    leaf="C2.1",
    summary="the learning rate has a zero too few",
    change="build_optimizer is given 3e-3 where 3e-4 is declared",
    inject=inject,
)
