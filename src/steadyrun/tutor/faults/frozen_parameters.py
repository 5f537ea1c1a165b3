"""Everything but the last layer is frozen, and the last layer is found by a name that is not the head's."""

from dataclasses import replace

from torch import nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("final" in name)
        return model

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="frozen-parameters",
    leaf="C3.1",
    summary="nearly all parameters are frozen",
    change="build_model leaves requires_grad on for names with 'final' in them: the last norm, not the head",
    inject=inject,
)
