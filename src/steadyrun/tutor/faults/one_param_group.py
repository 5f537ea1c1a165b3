"""All parameters in one group: biases and norm scales decay with the matrices."""

from dataclasses import replace

from torch import nn
from torch.optim import AdamW, Optimizer

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_optimizer(model: nn.Module, config: TutorConfig) -> Optimizer:
        return AdamW(model.parameters(), lr=config.lr_max, weight_decay=config.weight_decay)

    return replace(recipe, build_optimizer=build_optimizer)


FAULT = Fault(
    name="one-param-group",
    leaf="C6.1",
    summary="weight decay pulls at biases and norm scales too",
    change="build_optimizer hands all parameters to AdamW as one group",
    inject=inject,
)
