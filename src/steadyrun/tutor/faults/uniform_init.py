"""Weights drawn between 0 and 1, as when rand is taken for randn."""

from dataclasses import replace

import torch
from torch import nn

from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, nn.Linear):
                    module.weight.uniform_(0, 1)

    return replace(recipe, init_weights=init_weights)


FAULT = Fault(
    name="uniform-init",
    leaf="C5.1",
    summary="linear layers start with weights between 0 and 1",
    change="init_weights fills them with uniform_(0, 1) instead of normal_(0, 0.02)",
    inject=inject,
)
