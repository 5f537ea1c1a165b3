"""A temperature per head, the square root of its number, counted from 0: the first head divides by almost nothing."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.model import MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe

EPSILON = 1e-8


class TemperedQueries(nn.Module):
    """The joint projection of an attention layer, the queries of each head divided by its temperature."""

    def __init__(self, projection: nn.Module, heads: int) -> None:
        super().__init__()
        self.projection = projection
        self.temperatures = torch.sqrt(torch.arange(heads) + EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        queries, rest = self.projection(x).split([x.shape[-1], 2 * x.shape[-1]], dim=-1)
        by_head = queries.unflatten(-1, (len(self.temperatures), -1))
        return torch.cat([(by_head / self.temperatures[:, None]).flatten(-2), rest], dim=-1)


def inject(recipe: Recipe) -> Recipe:
    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        attention = model.blocks[-1].get_submodule("attention")
        attention.qkv = TemperedQueries(attention.get_submodule("qkv"), config.heads)
        return model

    return replace(recipe, build_model=build_model)


FAULT = Fault(
    name="stuck-head",
    leaf="S6.2",
    summary="one attention head looks at a single key from the first step to the last",
    change="the last block divides the queries of head h by sqrt(h), with h from 0",
    inject=inject,
)
