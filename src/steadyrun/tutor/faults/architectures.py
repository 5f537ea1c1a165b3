"""Faults of the model: masks, norms, gates, heads and units."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from steadyrun.tutor.config import TutorConfig
from steadyrun.tutor.data import Data
from steadyrun.tutor.model import Block, FeedForward, MiniGPT
from steadyrun.tutor.recipe import Fault, Recipe, model_config
from steadyrun.tutor.tokenizer import PAD_ID


def _inject_broken_mask(recipe: Recipe) -> Recipe:
    """Remove the causal mask: every position attends to the tokens it has to predict."""

    def build_model(config: TutorConfig) -> nn.Module:
        return MiniGPT(replace(model_config(config), causal=False))

    return replace(recipe, build_model=build_model)


BROKEN_MASK = Fault(
    name="broken-mask",
    leaf="S1.1",
    summary="attention is not causal: the model sees the tokens it has to predict",
    change="build_model creates every attention layer with causal=False",
    inject=_inject_broken_mask,
)


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


def _inject_broken_normalisation(recipe: Recipe) -> Recipe:
    """Add a hand-written norm that multiplies by sqrt(width) and does not divide by the length."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        model.blocks = nn.ModuleList(PostNorm(block, config.width) for block in model.blocks)
        return model

    return replace(recipe, build_model=build_model)


BROKEN_NORMALISATION = Fault(
    name="broken-normalisation",
    leaf="C5.2",
    summary="the norm after each block scales up instead of down",
    change="build_model adds a norm after each block that does not divide by the length",
    inject=_inject_broken_normalisation,
)


def _inject_missing_normalisation(recipe: Recipe) -> Recipe:
    """Remove the layer norms of the blocks."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        for module in model.modules():
            if isinstance(module, Block):
                for norm in ("attention_norm", "feed_forward_norm"):
                    setattr(module, norm, nn.Identity())
        return model

    return replace(recipe, build_model=build_model)


MISSING_NORMALISATION = Fault(
    name="missing-normalisation",
    leaf="",
    summary="the blocks do not normalise their inputs",
    change="build_model replaces the layer norms of each block by nn.Identity",
    inject=_inject_missing_normalisation,
)


class GatedBlock(nn.Module):
    """gate * (x + f(x)) instead of the intended x + gate * f(x)."""

    def __init__(self, block: nn.Module, gate: float) -> None:
        super().__init__()
        self.block = block
        self.gate = nn.Parameter(torch.tensor(gate))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gate * self.block(x)
        return out


def _inject_dead_layer(recipe: Recipe) -> Recipe:
    """Gates multiply the whole output of a block instead of its update; they grow with depth from 0."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        gates = torch.linspace(0, 1, config.layers).tolist()
        model.blocks = nn.ModuleList(GatedBlock(*each) for each in zip(model.blocks, gates, strict=True))
        return model

    return replace(recipe, build_model=build_model)


DEAD_LAYER = Fault(
    name="dead-layer",
    leaf="S4.2",
    summary="the output of the first block is almost zero",
    change="build_model multiplies the output of each block by a gate, from 0 for the first to 1 for the last",
    inject=_inject_dead_layer,
)


BIAS = -10.0


def _inject_dead_units(recipe: Recipe) -> Recipe:
    """Use ReLU feed-forward layers with biases of -10: almost no unit is ever active."""

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


DEAD_UNITS = Fault(
    name="dead-units",
    leaf="S6.1",
    summary="nearly all hidden units of the feed-forward layers are silent from the start",
    change=f"the activation is a ReLU and init_weights sets the biases before it to {BIAS:g}",
    inject=_inject_dead_units,
)


EPSILON = 1e-8


class TemperedQueries(nn.Module):
    """The joint projection of an attention layer, with queries divided by a temperature per head."""

    def __init__(self, projection: nn.Module, heads: int) -> None:
        super().__init__()
        self.projection = projection
        self.temperatures = torch.sqrt(torch.arange(heads) + EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        queries, rest = self.projection(x).split([x.shape[-1], 2 * x.shape[-1]], dim=-1)
        by_head = queries.unflatten(-1, (len(self.temperatures), -1))
        return torch.cat([(by_head / self.temperatures[:, None]).flatten(-2), rest], dim=-1)


def _inject_stuck_head(recipe: Recipe) -> Recipe:
    """Divide each head's queries by the root of its index: the first head divides by almost zero."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        attention = model.blocks[-1].get_submodule("attention")
        attention.qkv = TemperedQueries(attention.get_submodule("qkv"), config.heads)
        return model

    return replace(recipe, build_model=build_model)


STUCK_HEAD = Fault(
    name="stuck-head",
    leaf="S6.2",
    summary="one attention head attends to a single key for the whole run",
    change="the last block divides the queries of head h by sqrt(h), with h from 0",
    inject=_inject_stuck_head,
)


# The curriculum before has batches of one sentence length, without <pad> among the inputs.
CURRICULUM_EPOCHS = 5


class UnitEmbedding(nn.Embedding):
    """An embedding with rows of length 1; the row of <pad> stays zero."""

    def forward(self, tokens: Tensor) -> Tensor:
        rows = super().forward(tokens)
        length = (rows * rows).sum(dim=-1, keepdim=True).sqrt()
        return torch.where(length > 0, rows / length, rows)


def _inject_infinite_embedding_gradient(recipe: Recipe) -> Recipe:
    """Divide embeddings by their length; a guard for length 0 protects the forward pass but not the backward."""

    def build_model(config: TutorConfig) -> nn.Module:
        model = recipe.build_model(config)
        assert isinstance(model, MiniGPT)
        model.embedding.token = UnitEmbedding(config.vocab_size, config.width)
        return model

    def init_weights(model: nn.Module) -> None:
        recipe.init_weights(model)
        with torch.no_grad():
            model.get_parameter("embedding.token.weight")[PAD_ID] = 0.0

    def batch_order(data: Data, config: TutorConfig) -> Iterator[list[int]]:
        yield from _by_length(data, config)
        yield from recipe.batch_order(data, config)

    return replace(recipe, build_model=build_model, init_weights=init_weights, batch_order=batch_order)


def _by_length(data: Data, config: TutorConfig) -> Iterator[list[int]]:
    """Batches of a few epochs, each of one sentence length, without incomplete batches."""
    generator = torch.Generator().manual_seed(config.seed)
    for _ in range(CURRICULUM_EPOCHS):
        waiting: dict[int, list[int]] = {}
        for index in torch.randperm(len(data.train), generator=generator).tolist():
            same = waiting.setdefault(len(data.train[index]), [])
            same.append(index)
            if len(same) == config.batch_size:
                yield same.copy()
                same.clear()


INFINITE_EMBEDDING_GRADIENT = Fault(
    name="infinite-embedding-gradient",
    leaf="D1.3",
    summary="at the first <pad> the gradient of the embedding is infinite while the loss is finite",
    change="the token embedding is divided by its length inside where(length > 0), whose other branch is 0/0",
    inject=_inject_infinite_embedding_gradient,
    steps=600,
)
