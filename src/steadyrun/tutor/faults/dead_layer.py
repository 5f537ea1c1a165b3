"""Gates that grow with depth and are meant for what a block adds multiply all that comes out of it; the first is 0."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.model import MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe


class GatedBlock(nn.Module):
    """gate * (x + f(x)), where x + gate * f(x) was meant."""

    def __init__(self, block: nn.Module, gate: float) -> None:
        super().__init__()
        self.block = block
        self.gate = nn.Parameter(torch.tensor(gate))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gate * self.block(x)
        return out


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        gates = torch.linspace(0, 1, config.layers).tolist()
        model.blocks = nn.ModuleList(GatedBlock(*each) for each in zip(model.blocks, gates, strict=True))
        return model

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="dead-layer",
    leaf="S4.2",
    summary="what comes out of the first block is next to nothing",
    change="build_model multiplies the output of each block by a gate, from 0 for the first to 1 for the last",
    inject=inject,
)
