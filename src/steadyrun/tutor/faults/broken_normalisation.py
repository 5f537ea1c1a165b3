"""A norm written by hand that multiplies by sqrt(width) and forgets to divide by the length."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.model import MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe


class PostNorm(nn.Module):
    """A block whose output should be scaled to length sqrt(width): weight * sqrt(width) * x / |x|."""

    def __init__(self, block: nn.Module, width: int) -> None:
        super().__init__()
        self.block = block
        self.weight = nn.Parameter(torch.ones(width))
        self.length = width**0.5

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.weight * self.length * self.block(x)
        return scaled


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        model.blocks = nn.ModuleList(PostNorm(block, config.width) for block in model.blocks)
        return model

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="broken-normalisation",
    leaf="C5.2",
    summary="the norm after each block multiplies what it should scale down",
    change="build_model puts a norm after the blocks that lacks its division by the length",
    inject=inject,
)
