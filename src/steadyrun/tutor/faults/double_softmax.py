"""Probabilities handed to a loss that takes logits: softmax is applied twice."""

from dataclasses import replace

from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.recipe import Fault, Recipe


class Probabilities(nn.Module):
    """A model whose output was made "ready to use"."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens)
        return logits.softmax(dim=-1)


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        return Probabilities(recipe.build_model(config))

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="double-softmax",
    leaf="C3.1",
    summary="the model returns probabilities and the loss takes them for logits",
    change="build_model ends in a softmax; the cross-entropy applies its own",
    inject=inject,
    steps=600,
)
