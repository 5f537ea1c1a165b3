"""Feed-forward layers with a ReLU whose biases begin at -10: hardly a unit ever speaks."""

from dataclasses import replace

from torch import nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.model import FeedForward
from steadyrun.tutor.recipe import Fault, Recipe

BIAS = -10.0


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for module in model.modules():
            if isinstance(module, FeedForward):
                module.activation = nn.ReLU()  # type: ignore[assignment]
        return model

    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        for module in model.modules():
            if isinstance(module, FeedForward):
                nn.init.constant_(module.up.bias, BIAS)

    return replace(recipe, build_model=build_model, init_weights=init_weights)


FAULT = Fault(
    name="dead-units",
    leaf="S6.1",
    summary="nearly all hidden units of the feed-forward layers are silent from the start",
    change=f"the activation is a ReLU and init_weights sets the biases before it to {BIAS:g}",
    inject=inject,
)
