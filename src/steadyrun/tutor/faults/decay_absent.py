"""The optimizer is Adam with decoupled decay in name, and is built without the decay."""

from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return recipe.build_optimizer(model, replace(config, weight_decay=0.0))

    return replace(recipe, build_optimizer=build_optimizer)


FAULT = Fault(
    name="decay-absent",
    leaf="S5.2",
    summary="no weight decays although the configuration says so",
    change="build_optimizer leaves weight_decay at 0",
    inject=inject,
)
