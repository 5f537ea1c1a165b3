"""Attention without its causal mask: every position sees the tokens it has to predict."""

from dataclasses import replace

from torch import nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.model import MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe, model_config


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        return MiniGPT(replace(model_config(config), causal=False))

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="broken-mask",
    leaf="S1.1",
    summary="attention is not causal: the model reads the answers",
    change="build_model makes every attention layer with causal=False",
    inject=inject,
)
