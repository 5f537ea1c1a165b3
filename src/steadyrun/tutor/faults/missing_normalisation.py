"""The blocks have no layer norms."""

from dataclasses import replace

from torch import nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.model import Block
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for module in model.modules():
            if isinstance(module, Block):
                for norm in ("attention_norm", "feed_forward_norm"):
                    setattr(module, norm, nn.Identity())
        return model

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="missing-normalisation",
    leaf="",
    summary="the blocks do not normalise their inputs",
    change="build_model puts nn.Identity where each block has its layer norms",
    inject=inject,
)
